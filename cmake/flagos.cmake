# Helpers that keep every folder's CMakeLists.txt at a few lines.

# -Wrestrict and -Wstringop-overflow misfire in g++ 12 on std::string and std::atomic.
set(FLAGOS_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers -Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized)

# flagos_library(NAME base DIRS . [SOURCES extra.cpp] [DEPS flagos_x ...]): static library flagos_NAME from the
# *.cpp of DIRS. A folder without sources yet gives an interface library, so that parts can grow in any order.
function(flagos_library)
  cmake_parse_arguments(A "" "NAME" "DIRS;SOURCES;DEPS" ${ARGN})
  set(sources ${A_SOURCES})
  foreach(dir IN LISTS A_DIRS)
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cpp)
    list(FILTER found EXCLUDE REGEX "main\\.cpp$")
    list(APPEND sources ${found})
  endforeach()
  if(sources)
    add_library(flagos_${A_NAME} STATIC ${sources})
    target_compile_options(flagos_${A_NAME} PRIVATE ${FLAGOS_WARNINGS})
    set(scope PUBLIC)
  else()
    add_library(flagos_${A_NAME} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(flagos_${A_NAME} ${scope} ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR}/generated)
  target_link_libraries(flagos_${A_NAME} ${scope} Threads::Threads nlohmann_json::nlohmann_json ${A_DEPS})
endfunction()

# flagos_unit(PART deps...): tests/unit/PART/*.cpp -> build/tests/unit_PART, run by ctest as unit.PART.
function(flagos_unit part)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/${part}/*.cpp)
  if(NOT sources)
    return()
  endif()
  add_executable(unit_${part} ${sources} $<TARGET_OBJECTS:catch_main>)
  target_include_directories(unit_${part} PRIVATE ${CMAKE_SOURCE_DIR})
  target_compile_definitions(unit_${part} PRIVATE FLAGOS_SOURCE_DIR="${CMAKE_SOURCE_DIR}" FLAGOS_BINARY_DIR="${CMAKE_BINARY_DIR}")
  target_compile_options(unit_${part} PRIVATE ${FLAGOS_WARNINGS})
  target_link_libraries(unit_${part} PRIVATE ${ARGN})
  if(TARGET Catch2::Catch2)
    target_link_libraries(unit_${part} PRIVATE Catch2::Catch2)
  endif()
  set_target_properties(unit_${part} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME unit.${part} COMMAND unit_${part})
  set_tests_properties(unit.${part} PROPERTIES TIMEOUT 600 WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endfunction()

# *.cl and *.json as compiled-in text: flagos_embed(out.cpp namespace-qualified function, files...).
# The function is `std::string_view FUNCTION(std::string_view name) noexcept`, name = file name without suffix.
function(flagos_embed output function)
  set(entries "")
  foreach(file IN LISTS ARGN)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  string(REPLACE ";" "|" files "${ARGN}")
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DOUTPUT=${output} -DFUNCTION=${function} "-DFILES=${files}" -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${ARGN} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
endfunction()
