//! Sets the soname of NVIDIA's library: once this library is loaded, the dynamic loader opens no
//! other file of that name.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
}
