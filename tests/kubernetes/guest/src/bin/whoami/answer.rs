//! What is answered.

use crate::identity::Identity;
use crate::request::Request;
use std::fmt::Write as _;
use std::net::SocketAddr;

const OK: &str = "200 OK";

/// An answer, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    status: &'static str,
    media_type: &'static str,
    body: String,
    /// Without the body, as `HEAD` asks.
    head_only: bool,
}

impl Answer {
    /// Answers a request that `client` sent to this pod.
    pub(crate) fn to(request: &Request, client: SocketAddr, identity: &Identity) -> Self {
        let head_only = request.method == "HEAD";
        if request.method != "GET" && !head_only {
            return Self::refused("405 Method Not Allowed");
        }
        // IPv4 in a socket of both families looks like ::ffff:10.1.0.9.
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

    /// An answer that says only what is wrong.
    pub(crate) fn refused(status: &'static str) -> Self {
        Self {
            status,
            media_type: "text/plain",
            body: format!("{status}\n"),
            head_only: false,
        }
    }

    /// Tells whether the request was not one to answer.
    pub(crate) fn is_refused(&self) -> bool {
        self.status != OK
    }

    /// The bytes to send, after which the connection is closed.
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

/// Text as JSON has it (RFC 8259 §7).
fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            // Writing to a string does not fail.
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
    fn a_line_tells_client_and_pod() {
        let answer = sent(&request("GET", "/"));

        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(answer.ends_with("\r\n\r\nclient=10.1.0.9:40112 pod=web-1 node=a1 ip=10.1.0.7\n"));
    }

    #[test]
    fn json_tells_the_request_too_however_odd() {
        let mut request = request("GET", "/json");
        request.host = "a\"b\\c\u{1}ä".to_owned();

        let answer = sent(&request);

        let body = r#"{"client":"10.1.0.9:40112","pod":"web-1","node":"a1","ip":"10.1.0.7","path":"/json","host":"a\"b\\c\u0001ä"}"#;
        assert!(answer.ends_with(&format!("\r\n\r\n{body}\n")), "{answer}");
        assert!(answer.contains("application/json"));
        assert!(answer.contains(&format!("Content-Length: {}\r\n", body.len() + 1)));
    }

    #[test]
    fn head_has_the_length_and_no_body() {
        let answer = sent(&request("HEAD", "/healthz"));

        assert!(answer.contains("Content-Length: 3\r\n") && answer.ends_with("\r\n\r\n"));
    }

    #[test]
    fn nothing_can_be_changed_here() {
        let answer = sent(&request("POST", "/"));

        assert!(answer.starts_with("HTTP/1.1 405 "));
    }

    fn sent(request: &Request) -> String {
        let client = "[::ffff:10.1.0.9]:40112".parse().unwrap();
        let identity = Identity {
            pod: "web-1".to_owned(),
            node: "a1".to_owned(),
            ip: "10.1.0.7".to_owned(),
        };
        let answer = Answer::to(request, client, &identity);

        String::from_utf8(answer.into_bytes()).unwrap()
    }

    fn request(method: &str, path: &str) -> Request {
        Request {
            method: method.to_owned(),
            path: path.to_owned(),
            host: "web".to_owned(),
        }
    }
}
