// A shared library for the tests of the library search.
extern "C" int apr_probe() {
  return 1;
}
