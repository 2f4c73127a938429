# Flags of all our code. No contraction anywhere: dequantisation and the oracle are bitwise contracts.
add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                    -Wnon-virtual-dtor -Woverloaded-virtual -ffp-contract=off)
if(APR_WERROR)
  add_compile_options(-Werror)
endif()
if(APR_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "APR_FUZZ needs clang: -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++")
  endif()
  set(APR_SANITIZE fuzzer-no-link,address,undefined)
endif()
if(APR_SANITIZE)
  add_compile_options(-fsanitize=${APR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${APR_SANITIZE})
elseif(CMAKE_BUILD_TYPE STREQUAL "Release")
  add_link_options(-static-libstdc++ -static-libgcc)
endif()

# apr_layer(NAME [COLD] [APART] SOURCES... DEPS...): the static library apr_NAME of one layer. COLD: code
# that runs once a start or a step, compiled with -O1, a fifth faster. APART: not one file with APR_UNITY.
# One file: what anonymous namespaces name is to be unique in a layer.
function(apr_layer name)
  cmake_parse_arguments(arg "COLD;APART" "" "SOURCES;DEPS" ${ARGN})
  add_library(apr_${name} STATIC ${arg_SOURCES})
  if(arg_COLD)
    target_compile_options(apr_${name} PRIVATE -O1)
  endif()
  if(APR_UNITY AND NOT arg_APART)
    set_target_properties(apr_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 0)
  endif()
  target_include_directories(apr_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/kernels ${PROJECT_BINARY_DIR}/generated)
  target_link_libraries(apr_${name} PUBLIC ${arg_DEPS})
endfunction()
