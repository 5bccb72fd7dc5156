use super::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::getsockname;

#[test]
fn a_run_arrives_as_its_datagrams() {
    let (mut sender, receiver, to) = pair();
    let run: Vec<u8> = (0..1050).map(|at: usize| at.to_le_bytes()[0]).collect();

    sender.send_run(to, &run, 100, |error, _| panic!("{error}"));
    let datagrams = received(&receiver, 11);

    let expected: Vec<_> = run.chunks(100).map(<[u8]>::to_vec).collect();
    assert_eq!(datagrams, expected);
}

#[test]
fn without_segmentation_a_run_is_sent_one_by_one() {
    let (mut sender, receiver, to) = pair();
    sender.segmentation = false;

    sender.send_run(to, &[7; 250], 100, |error, _| panic!("{error}"));

    assert_eq!(received(&receiver, 3).concat(), [7; 250]);
}

#[test]
fn a_path_that_refuses_a_run_gets_single_datagrams() {
    let (mut sender, receiver, to) = pair();
    let mut errors = Vec::new();

    // The kernel rejects a run of more datagrams than `UDP_MAX_SEGMENTS` with EINVAL. The socket
    // handles this error as if the path's MTU were too small.
    sender.send_run(to, &[7; 300], 1, |error, _| errors.push(error));

    assert_eq!(received(&receiver, 300).len(), 300);
    assert_eq!(errors, []);
    assert!(sender.segmentation);
    assert!(!sender.takes_runs(to, 1));
    let other = SocketAddr::from(([127, 0, 0, 2], 1));
    assert!(sender.takes_runs(other, 1));
}

#[test]
fn an_ipv4_sender_has_an_ipv4_address_on_every_socket() {
    let (mut sender, receiver, to) = pair();
    sender.send(to, b"hello", true).unwrap();
    wait(&receiver);

    let mut buffer = [0; RECEIVE_MAX];
    let receipt = receiver.receive(&mut buffer).unwrap().unwrap();

    assert!(receipt.from.is_ipv4());
    assert_eq!(&buffer[..receipt.len], b"hello");
    assert_eq!(receiver.receive(&mut buffer).unwrap(), None);
}

#[test]
fn a_port_in_use_is_named() {
    let taken = UdpPort::open(0).unwrap();
    let port = port(&taken);

    let error = UdpPort::open(port).err().unwrap();

    assert!(
        error
            .to_string()
            .contains(&format!("port {port} is in use"))
    );
}

fn pair() -> (UdpPort, UdpPort, SocketAddr) {
    let receiver = UdpPort::open(0).unwrap();
    let to = SocketAddr::from(([127, 0, 0, 1], port(&receiver)));
    (UdpPort::open(0).unwrap(), receiver, to)
}

fn port(of: &UdpPort) -> u16 {
    if of.dual_stack {
        getsockname::<SockaddrIn6>(of.socket.as_raw_fd())
            .unwrap()
            .port()
    } else {
        getsockname::<SockaddrIn>(of.socket.as_raw_fd())
            .unwrap()
            .port()
    }
}

fn wait(port: &UdpPort) {
    let mut fds = [PollFd::new(port.as_fd(), PollFlags::POLLIN)];
    assert_eq!(
        poll(&mut fds, PollTimeout::from(5000_u16)),
        Ok(1),
        "nothing arrived"
    );
}

fn received(port: &UdpPort, count: usize) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    let mut buffer = vec![0; RECEIVE_MAX];
    while datagrams.len() < count {
        wait(port);
        while let Some(receipt) = port.receive(&mut buffer).unwrap() {
            let chunks = buffer[..receipt.len].chunks(receipt.segment);
            datagrams.extend(chunks.map(<[u8]>::to_vec));
        }
    }
    datagrams
}
