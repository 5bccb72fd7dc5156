//! Tests of `whoami` over TCP connections.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;

#[test]
fn a_client_gets_its_address_and_the_identity_of_the_pod() {
    let server = Server::start();
    let stream = TcpStream::connect(server.address).unwrap();
    let client = stream.local_addr().unwrap();

    let response = get(stream, "GET / HTTP/1.1\r\nHost: web\r\n\r\n");

    assert_eq!(
        body(&response),
        format!("client={client} pod=web-1 node=a1 ip=10.1.0.7\n")
    );
}

#[test]
fn json_has_the_path_and_the_host() {
    let server = Server::start();

    let response = server.get("GET /json?x=1 HTTP/1.1\r\nHost: web.test\r\n\r\n");

    assert!(body(&response).contains(r#""path":"/json","host":"web.test"}"#));
}

#[test]
fn it_is_healthy_as_soon_as_it_listens() {
    let server = Server::start();

    assert_eq!(body(&server.get("GET /healthz HTTP/1.1\r\n\r\n")), "ok\n");
}

#[test]
fn idle_clients_do_not_block_others() {
    let server = Server::start();
    // The server has 16 threads, so one thread remains.
    let _silent: Vec<_> = (0..15)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();

    let clients: Vec<_> = (0..64)
        .map(|_| {
            let address = server.address;
            thread::spawn(move || {
                let stream = TcpStream::connect(address).unwrap();
                get(stream, "GET /healthz HTTP/1.1\r\n\r\n")
            })
        })
        .collect();

    for client in clients {
        assert!(client.join().unwrap().starts_with("HTTP/1.1 200 OK\r\n"));
    }
}

#[test]
fn an_unexpected_body_does_not_cost_the_response() {
    let server = Server::start();
    let request = format!(
        "POST / HTTP/1.1\r\nContent-Length: 30000\r\n\r\n{}",
        "x".repeat(30_000)
    );

    let response = server.get(&request);

    assert!(response.starts_with("HTTP/1.1 405 "), "{response}");
}

#[test]
fn an_endless_head_is_refused() {
    let server = Server::start();

    let response = server.get(&format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(9_000)));

    assert!(response.starts_with("HTTP/1.1 431 "), "{response}");
}

#[test]
fn it_exits_successfully_at_sigterm() {
    let mut server = Server::start();

    let kill = Command::new("kill")
        .arg(server.process.id().to_string())
        .status();

    assert!(kill.unwrap().success());
    assert_eq!(server.process.wait().unwrap().code(), Some(0));
}

/// A server process, on a port that the kernel chose.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_whoami"))
            .args(["--address", "127.0.0.1", "--port", "0"])
            .env("POD_NAME", "web-1")
            .env("NODE_NAME", "a1")
            .env("POD_IP", "10.1.0.7")
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        let output = process.stdout.take().expect("it is piped");
        let mut output = BufReader::new(output);
        output.read_line(&mut line).expect("it prints its address");
        let address = line.trim().strip_prefix("listening on ");
        let address = address.and_then(|address| address.parse().ok());

        Self {
            address: address.expect("an address"),
            process,
        }
    }

    fn get(&self, request: &str) -> String {
        get(
            TcpStream::connect(self.address).expect("it listens"),
            request,
        )
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn get(mut stream: TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("it answers");

    response
}

fn body(response: &str) -> &str {
    response.split_once("\r\n\r\n").expect("a head").1
}
