//! Sets the real library's soname, so that a process that has loaded this one finds no other.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
}
