//! Opens the listening socket, which is dual-stack if the kernel supports IPv6.

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn6, bind, listen as start, setsockopt,
    socket, sockopt,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV6, TcpListener};
use std::os::fd::AsRawFd as _;

/// The maximum number of connections that wait for a thread.
const BACKLOG: i32 = 128;

/// Listens on `address`. The default is all addresses of both families.
///
/// # Errors
///
/// Returns the kernel's error, for example if the port is in use.
pub(crate) fn listen(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    if let Some(address) = address {
        return TcpListener::bind((address, port));
    }

    // The first attempt fails if the kernel has no IPv6. If the port is in use, both attempts fail.
    dual_stack(port).or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))
}

/// Opens a dual-stack socket. The standard library cannot clear `IPV6_V6ONLY`.
fn dual_stack(port: u16) -> io::Result<TcpListener> {
    let flags = SockFlag::SOCK_CLOEXEC;
    let socket = socket(AddressFamily::Inet6, SockType::Stream, flags, None)?;
    setsockopt(&socket, sockopt::Ipv6V6Only, &false)?;
    // With this option, a restarted server can bind the port while old connections are in
    // TIME_WAIT.
    setsockopt(&socket, sockopt::ReuseAddr, &true)?;
    let all = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0);
    bind(socket.as_raw_fd(), &SockaddrIn6::from(all))?;
    start(&socket, Backlog::new(BACKLOG)?)?;

    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn one_socket_serves_both_families() {
        let listener = listen(None, 0).unwrap();

        let port = listener.local_addr().unwrap().port();
        let caller = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();

        let (_, seen) = listener.accept().unwrap();
        assert_eq!(seen.port(), caller.local_addr().unwrap().port());
        assert_eq!(seen.ip().to_canonical(), Ipv4Addr::LOCALHOST);
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let first = listen(None, 0).unwrap();
        let port = first.local_addr().unwrap().port();

        let error = listen(None, port).unwrap_err();

        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
