//! Creates HTTP responses with the identity of the pod.

use crate::identity::Identity;
use crate::request::Request;
use std::fmt::Write as _;
use std::net::SocketAddr;

const OK: &str = "200 OK";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Response {
    status: &'static str,
    media_type: &'static str,
    body: String,
    /// Whether the body is omitted, because the method is `HEAD`.
    head_only: bool,
}

impl Response {
    /// Creates the response to a request of `client`.
    pub(crate) fn to(request: &Request, client: SocketAddr, identity: &Identity) -> Self {
        let head_only = request.method == "HEAD";
        if request.method != "GET" && !head_only {
            return Self::refused("405 Method Not Allowed");
        }
        // A dual-stack socket shows IPv4 addresses as ::ffff:10.1.0.9.
        let client = SocketAddr::new(client.ip().to_canonical(), client.port());
        let (media_type, body) = match request.path.as_str() {
            "/healthz" => ("text/plain", "ok\n".to_owned()),
            "/json" => ("application/json", json(request, client, identity)),
            _ => ("text/plain", line(client, identity)),
        };

        Self {
            status: OK,
            media_type,
            body,
            head_only,
        }
    }

    /// Creates a response with an error status.
    pub(crate) fn refused(status: &'static str) -> Self {
        Self {
            status,
            media_type: "text/plain",
            body: format!("{status}\n"),
            head_only: false,
        }
    }

    /// Returns whether the status is an error.
    pub(crate) fn is_refused(&self) -> bool {
        self.status != OK
    }

    /// Returns the bytes to send. The server closes the connection afterwards.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let Self {
            status,
            media_type,
            body,
            head_only,
        } = self;
        let length = body.len();
        let body = if head_only { "" } else { &body };

        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
        .into_bytes()
    }
}

fn line(client: SocketAddr, identity: &Identity) -> String {
    let Identity { pod, node, ip } = identity;

    format!("client={client} pod={pod} node={node} ip={ip}\n")
}

fn json(request: &Request, client: SocketAddr, identity: &Identity) -> String {
    let fields = [
        ("client", client.to_string()),
        ("pod", identity.pod.clone()),
        ("node", identity.node.clone()),
        ("ip", identity.ip.clone()),
        ("path", request.path.clone()),
        ("host", request.host.clone()),
    ];
    let fields = fields.map(|(name, value)| format!("\"{name}\":{}", quoted(&value)));

    format!("{{{}}}\n", fields.join(","))
}

/// Quotes a JSON string (RFC 8259 §7).
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Writing to a string cannot fail.
            control if control < ' ' => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');

    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_client_and_pod() {
        let response = sent(&request("GET", "/"));

        assert!(response.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(
            response.ends_with("\r\n\r\nclient=10.1.0.9:40112 pod=web-1 node=a1 ip=10.1.0.7\n")
        );
    }

    #[test]
    fn json_escapes_fields_of_the_request() {
        let mut request = request("GET", "/json");
        request.host = "a\"b\\c\u{1}ä".to_owned();

        let response = sent(&request);

        let body = r#"{"client":"10.1.0.9:40112","pod":"web-1","node":"a1","ip":"10.1.0.7","path":"/json","host":"a\"b\\c\u0001ä"}"#;
        assert!(
            response.ends_with(&format!("\r\n\r\n{body}\n")),
            "{response}"
        );
        assert!(response.contains("application/json"));
        assert!(response.contains(&format!("Content-Length: {}\r\n", body.len() + 1)));
    }

    #[test]
    fn head_has_the_length_and_no_body() {
        let response = sent(&request("HEAD", "/healthz"));

        assert!(response.contains("Content-Length: 3\r\n") && response.ends_with("\r\n\r\n"));
    }

    #[test]
    fn methods_that_change_something_are_refused() {
        let response = sent(&request("POST", "/"));

        assert!(response.starts_with("HTTP/1.1 405 "));
    }

    fn sent(request: &Request) -> String {
        let client = "[::ffff:10.1.0.9]:40112".parse().unwrap();
        let identity = Identity {
            pod: "web-1".to_owned(),
            node: "a1".to_owned(),
            ip: "10.1.0.7".to_owned(),
        };
        let response = Response::to(request, client, &identity);

        String::from_utf8(response.into_bytes()).unwrap()
    }

    fn request(method: &str, path: &str) -> Request {
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            host: "web".to_owned(),
        }
    }
}
