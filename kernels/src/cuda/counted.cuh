// Loads and stores of shared and global memory that the emulated device counts, warp by warp. On a
// GPU nothing is left of them but the access.
//
//   value = load_shared(place)      store_shared(place, value)
//   value = load_global(place)      store_global(place, value)
//
// A place is an lvalue: an element, or the target of a pointer.
#pragma once
#include "platform.cuh"

#ifdef __CUDACC__

// Not functions: the compiler would order the accesses otherwise.
#define load_shared(place) place
#define store_shared(place, value) place = value
#define load_global(place) place
#define store_global(place, value) place = value

#else

template <class T>
inline const T& counted(::emulated::Operation load, const T& place, const char* file, int line) {
  ::emulated::count(load, &place, sizeof(T), {file, line});
  return place;
}
template <class T>
inline T& counted(::emulated::Operation store, T& place, const char* file, int line) {
  ::emulated::count(store, &place, sizeof(T), {file, line});
  return place;
}
#define load_shared(place) counted(::emulated::LOAD_SHARED, place, __FILE__, __LINE__)
#define store_shared(place, value) \
  (counted(::emulated::STORE_SHARED, place, __FILE__, __LINE__) = value)
#define load_global(place) counted(::emulated::LOAD_GLOBAL, place, __FILE__, __LINE__)
#define store_global(place, value) \
  (counted(::emulated::STORE_GLOBAL, place, __FILE__, __LINE__) = value)

#endif
