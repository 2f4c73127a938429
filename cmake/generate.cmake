# Generated sources: the includes of every quant type file named by a row of the type table.
set(APR_TYPE_ROWS ${PROJECT_SOURCE_DIR}/src/quant/type_rows.inc)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${APR_TYPE_ROWS})
if(EXISTS ${APR_TYPE_ROWS})
  file(STRINGS ${APR_TYPE_ROWS} rows REGEX "^APR_QUANT_TYPE")
  set(includes "// Generated from src/quant/type_rows.inc.\n#pragma once\n")
  foreach(row IN LISTS rows)
    string(REGEX MATCH "([a-z0-9_]+\\.cuh)" file "${row}")
    string(APPEND includes "#include \"quant/${file}\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/apr_quant_files.h CONTENT "${includes}" @ONLY)
endif()

# apr_embed(OUT SYMBOL FILE): assembles FILE as the bytes between SYMBOL_begin and SYMBOL_end.
function(apr_embed out symbol file)
  file(CONFIGURE OUTPUT ${out} CONTENT "    .section .rodata
    .global ${symbol}_begin
    .global ${symbol}_end
    .balign 64
${symbol}_begin:
    .incbin \"${file}\"
${symbol}_end:
    .byte 0
    .section .note.GNU-stack,\"\",%progbits
" @ONLY)
  set_source_files_properties(${out} PROPERTIES OBJECT_DEPENDS ${file})
endfunction()
