//! Names the library as programs ask for it, so that a process which has loaded it finds no other.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
}
