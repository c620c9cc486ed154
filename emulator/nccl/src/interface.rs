//! The address of this host, selected by NCCL's rules.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::net::Ipv4Addr;
use std::ptr;

/// `struct ifaddrs`.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    name: *const c_char,
    flags: c_uint,
    address: *const Address,
    rest: [*const c_void; 3],
}

/// `struct sockaddr_in`, if the family is IPv4.
#[repr(C)]
struct Address {
    family: u16,
    port: u16,
    host: [u8; 4],
}

const IS_UP: c_uint = 1;
/// `AF_INET`.
const INTERNET: u16 = 2;

// SAFETY: the declarations match the C library's.
unsafe extern "C" {
    fn getifaddrs(list: *mut *mut Entry) -> c_int;
    fn freeifaddrs(list: *mut Entry);
}

/// The address of the preferred interface; `None` if no interface is allowed.
pub(crate) fn address() -> Option<Ipv4Addr> {
    let wanted = std::env::var("NCCL_SOCKET_IFNAME").unwrap_or_default();
    choose(&interfaces(), &wanted)
}

fn interfaces() -> Vec<(String, Ipv4Addr)> {
    let (mut found, mut list) = (vec![], ptr::null_mut());
    // SAFETY: writes one pointer, to a list that is freed below.
    if unsafe { getifaddrs(&mut list) } != 0 {
        return found;
    }
    let mut at = list;
    // SAFETY: the list has entries with NUL-terminated names and ends with null; an address is null
    // or begins with its family, which for this family guarantees four address bytes.
    while let Some(entry) = unsafe { at.as_ref() } {
        // SAFETY: as above.
        if let Some(address) = unsafe { entry.address.as_ref() }
            && address.family == INTERNET
            && entry.flags & IS_UP != 0
        {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(entry.name) }.to_string_lossy().into_owned();
            found.push((name, address.host.into()));
        }
        at = entry.next;
    }
    // SAFETY: the list came from `getifaddrs`, and no reference into it is kept.
    unsafe { freeifaddrs(list) };
    found
}

/// `wanted` is `NCCL_SOCKET_IFNAME`: comma-separated prefixes, excluded ones after `^`, exact names
/// after `=`. By default NCCL prefers `ib`, then other interfaces, then `docker`, then `lo`.
fn choose(interfaces: &[(String, Ipv4Addr)], wanted: &str) -> Option<Ipv4Addr> {
    let (is_not, names) = wanted.strip_prefix('^').map_or((false, wanted), |names| (true, names));
    let (is_whole, names) = names.strip_prefix('=').map_or((false, names), |names| (true, names));
    let is_named = |interface: &str| {
        names.split(',').any(|n| if is_whole { interface == n } else { interface.starts_with(n) })
    };
    let order = |name: &str| match name {
        _ if !wanted.is_empty() => 0,
        _ if name.starts_with("ib") => 0,
        _ if name.starts_with("docker") => 2,
        _ if name.starts_with("lo") => 3,
        _ => 1,
    };
    let allowed =
        interfaces.iter().filter(|(name, _)| wanted.is_empty() || is_named(name) != is_not);
    allowed.min_by_key(|(name, _)| order(name)).map(|(_, address)| *address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_choice_matches_nccl() {
        let all: Vec<_> = ["lo", "docker0", "eth0", "eth1"]
            .iter()
            .zip(1..)
            .map(|(name, i)| (name.to_string(), Ipv4Addr::new(10, 0, 0, i)))
            .collect();
        let chosen = |wanted| choose(&all, wanted).map(|address| address.octets()[3]);
        assert_eq!(chosen(""), Some(3));
        assert_eq!(chosen("lo"), Some(1));
        assert_eq!(chosen("eth1"), Some(4));
        assert_eq!(chosen("^lo,docker,eth0"), Some(4));
        assert_eq!(chosen("=eth"), None);
        assert_eq!(chosen("wlan"), None);
        assert_eq!(choose(&all[..2], "").map(|a| a.octets()[3]), Some(2));
    }
}
