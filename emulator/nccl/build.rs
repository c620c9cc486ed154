//! Gives this library the soname of NVIDIA's, so that the dynamic loader does not load NVIDIA's as
//! well.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
}
