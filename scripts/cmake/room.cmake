# SPDX-License-Identifier: Apache-2.0
# room(<folder> [<folders that it may use>...]): the static library of the folder's own .c files.
function(room folder)
  string(REPLACE "/" "_" name ms_${folder})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.c)
  list(FILTER sources EXCLUDE REGEX "/main\\.c$") # a program's own
  # What is preloaded, and what the pool's tests link.
  set(builds "-")
  if(MEMSHIM_CHECKS AND NOT folder MATCHES "^(shim/cli|report/(read|symbols|replay|fit|model|render))(/|$)")
    list(APPEND builds "_checked")
  endif()
  foreach(build ${builds})
    string(REPLACE "-" "" build ${build})
    set(library ${name}${build})
    add_library(${library} STATIC ${sources})
    target_include_directories(${library} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${library} PUBLIC Threads::Threads ${CMAKE_DL_LIBS})
    if(build)
      target_compile_definitions(${library} PUBLIC MEMSHIM_CHECKS)
    endif()
    target_compile_definitions(${library} PRIVATE _GNU_SOURCE)
    if(folder MATCHES "^shim")
      target_compile_definitions(${library} PRIVATE MEMSHIM_VERSION="${PROJECT_VERSION}")
      target_link_libraries(${library} PUBLIC cuda_headers)
    endif()
    # Old C libraries: the symbols' versions are chosen in one header, in every object that is
    # preloaded.
    target_compile_options(${library} PRIVATE -include ${PROJECT_SOURCE_DIR}/shim/driver/glibc.h)
    foreach(used ${ARGN})
      string(REPLACE "/" "_" used ms_${used})
      target_link_libraries(${library} PUBLIC ${used}${build})
    endforeach()
  endforeach()
endfunction()
