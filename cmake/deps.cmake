# Dependencies, by their Debian / Ubuntu packages; linked statically where the archive exists.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)             # libfmt-dev: its headers
find_package(spdlog REQUIRED)          # libspdlog-dev, header-only
find_package(CLI11 REQUIRED)           # libcli11-dev
find_package(nlohmann_json REQUIRED)   # nlohmann-json3-dev
find_path(HWY_INCLUDE hwy/highway.h REQUIRED)       # libhwy-dev, headers only (static dispatch)
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)           # libpcre2-dev
find_library(PCRE2_LIB NAMES libpcre2-8.a pcre2-8 REQUIRED)
find_path(UTF8PROC_INCLUDE utf8proc.h REQUIRED)     # libutf8proc-dev
find_library(UTF8PROC_LIB NAMES libutf8proc.a utf8proc REQUIRED)

if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  add_library(apr_fmt STATIC cmake/fmt_library.cpp)
  target_include_directories(apr_fmt SYSTEM PUBLIC
    $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
else()  # what an fmt leaves to its library differs between versions
  add_library(apr_fmt INTERFACE)
  target_link_libraries(apr_fmt INTERFACE fmt::fmt-header-only)
endif()

add_library(apr_spdlog INTERFACE)
target_include_directories(apr_spdlog SYSTEM INTERFACE
  $<TARGET_PROPERTY:spdlog::spdlog_header_only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(apr_spdlog INTERFACE SPDLOG_FMT_EXTERNAL)
target_link_libraries(apr_spdlog INTERFACE apr_fmt Threads::Threads)

add_library(apr_hwy INTERFACE)
target_include_directories(apr_hwy SYSTEM INTERFACE ${HWY_INCLUDE})
target_compile_definitions(apr_hwy INTERFACE HWY_IS_DEBUG_BUILD=0)  # its asserts need its library

add_library(apr_pcre2 INTERFACE)
target_include_directories(apr_pcre2 SYSTEM INTERFACE ${PCRE2_INCLUDE})
target_compile_definitions(apr_pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8)
target_link_libraries(apr_pcre2 INTERFACE ${PCRE2_LIB})

add_library(apr_utf8proc INTERFACE)
target_include_directories(apr_utf8proc SYSTEM INTERFACE ${UTF8PROC_INCLUDE})
target_compile_definitions(apr_utf8proc INTERFACE UTF8PROC_STATIC)
target_link_libraries(apr_utf8proc INTERFACE ${UTF8PROC_LIB})
