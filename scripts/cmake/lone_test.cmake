# SPDX-License-Identifier: Apache-2.0
# add_lone_test(NAME <name> COMMAND <command...> [WORKING_DIRECTORY <folder>]): as add_test, and nothing
# that another test or a user left is there for it (alone.sh).
function(add_lone_test)
  cmake_parse_arguments(arg "" "NAME;WORKING_DIRECTORY" "COMMAND" ${ARGN})
  list(POP_FRONT arg_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  if(NOT arg_WORKING_DIRECTORY)
    set(arg_WORKING_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  add_test(NAME ${arg_NAME} COMMAND ${PROJECT_SOURCE_DIR}/tests/alone.sh ${program} ${arg_COMMAND}
           WORKING_DIRECTORY ${arg_WORKING_DIRECTORY})
endfunction()
