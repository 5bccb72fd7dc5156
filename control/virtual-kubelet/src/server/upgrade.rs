//! Headers of requests that switch to another protocol, and of their responses.
//!
//! Only these headers are forwarded: no credentials of a user reach the provider, and no other header of the provider
//! reaches the API server.

use super::refusal::Refusal;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Prefix of a subprotocol by which WebSocket clients send a bearer token of this cluster.
const BEARER_SUBPROTOCOL: &str = "base64url.bearer.authorization.k8s.io.";

/// A protocol with several streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// SPDY/3.1 with the stream protocols of Kubernetes.
    Spdy,
    /// WebSocket (RFC 6455) with the subprotocols of Kubernetes.
    WebSocket,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Spdy, Self::WebSocket];

    /// Returns the protocol that a request switches to.
    ///
    /// # Errors
    ///
    /// Returns a refusal if the request does not switch to a known protocol.
    pub(crate) fn of(method: &Method, headers: &HeaderMap) -> Result<Self, Refusal> {
        let upgrades = has_token(headers, &header::CONNECTION, "upgrade");
        let found = Self::ALL
            .into_iter()
            .find(|it| upgrades && has_token(headers, &header::UPGRADE, it.name()));
        let protocol = found.ok_or_else(|| {
            Refusal::invalid(
                "the request must switch to SPDY/3.1 or websocket by its header Upgrade",
            )
        })?;
        if protocol == Self::WebSocket && method != Method::GET {
            return Err(Refusal::invalid(
                "a request that switches to websocket must be a GET",
            ));
        }

        Ok(protocol)
    }

    /// Returns the value of the header `Upgrade`.
    fn name(self) -> &'static str {
        match self {
            Self::Spdy => "SPDY/3.1",
            Self::WebSocket => "websocket",
        }
    }

    /// Returns the headers of the request to the provider.
    pub(crate) fn request(self, received: &HeaderMap) -> HeaderMap {
        let forwarded: &[HeaderName] = match self {
            Self::Spdy => &[STREAM_PROTOCOL],
            Self::WebSocket => &[
                header::SEC_WEBSOCKET_KEY,
                header::SEC_WEBSOCKET_VERSION,
                header::SEC_WEBSOCKET_PROTOCOL,
            ],
        };
        self.headers(forwarded, received)
    }

    /// Returns the headers of the response to the client; `None` if the provider has switched to another protocol.
    pub(crate) fn response(self, received: &HeaderMap) -> Option<HeaderMap> {
        let forwarded: &[HeaderName] = match self {
            Self::Spdy => &[STREAM_PROTOCOL],
            Self::WebSocket => &[header::SEC_WEBSOCKET_ACCEPT, header::SEC_WEBSOCKET_PROTOCOL],
        };
        let is_same = has_token(received, &header::UPGRADE, self.name());

        is_same.then(|| self.headers(forwarded, received))
    }

    fn headers(self, forwarded: &[HeaderName], received: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static(self.name()));
        for name in forwarded {
            for value in received.get_all(name) {
                let value = match *name == header::SEC_WEBSOCKET_PROTOCOL {
                    true => without_token(value),
                    false => Some(value.clone()),
                };
                if let Some(value) = value {
                    headers.append(name, value);
                }
            }
        }

        headers
    }
}

/// Returns subprotocols without one that carries a token.
fn without_token(value: &HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let names = text.split(',').map(str::trim);
    let kept = names.filter(|name| !name.starts_with(BEARER_SUBPROTOCOL) && !name.is_empty());
    let kept = kept.collect::<Vec<_>>().join(", ");

    HeaderValue::try_from(kept).ok().filter(|it| !it.is_empty())
}

/// Returns whether a header with a list contains a token, whatever its case.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter();
    let texts = values.filter_map(|value| value.to_str().ok());
    let mut tokens = texts.flat_map(|text| text.split(','));

    tokens.any(|it| it.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let value = HeaderValue::from_str(value).unwrap();
            (HeaderName::from_static(name), value)
        });
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| {
            headers.append(name, value);
        });
        headers
    }

    #[test]
    fn spdy_is_forwarded_with_all_stream_protocols_and_without_credentials() {
        let received = headers(&[
            ("connection", "Upgrade"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("x-stream-protocol-version", "v3.channel.k8s.io"),
            ("authorization", "Bearer secret"),
            ("cookie", "a"),
            ("impersonate-user", "admin"),
            ("x-forwarded-for", "10.0.0.1"),
        ]);
        let protocol = Protocol::of(&Method::POST, &received).unwrap();

        assert_eq!(
            protocol.request(&received),
            headers(&[
                ("connection", "Upgrade"),
                ("upgrade", "SPDY/3.1"),
                ("x-stream-protocol-version", "v4.channel.k8s.io"),
                ("x-stream-protocol-version", "v3.channel.k8s.io"),
            ])
        );
    }

    #[test]
    fn a_websocket_is_forwarded_without_extensions_and_tokens() {
        let received = headers(&[
            ("connection", "keep-alive, upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
            ("sec-websocket-extensions", "permessage-deflate"),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.c2VjcmV0, v4.channel.k8s.io",
            ),
            (
                "sec-websocket-protocol",
                "base64url.bearer.authorization.k8s.io.c2VjcmV0",
            ),
        ]);
        let protocol = Protocol::of(&Method::GET, &received).unwrap();
        assert_eq!(protocol, Protocol::WebSocket);

        assert_eq!(
            protocol.request(&received),
            headers(&[
                ("connection", "Upgrade"),
                ("upgrade", "websocket"),
                ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
                ("sec-websocket-version", "13"),
                ("sec-websocket-protocol", "v4.channel.k8s.io"),
            ])
        );
    }

    #[test]
    fn a_response_must_switch_to_the_same_protocol() {
        let response = headers(&[
            ("connection", "Upgrade"),
            ("upgrade", "spdy/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ("set-cookie", "a"),
        ]);
        assert_eq!(Protocol::WebSocket.response(&response), None);
        assert_eq!(Protocol::Spdy.response(&HeaderMap::new()), None);
        assert_eq!(
            Protocol::Spdy.response(&response),
            Some(headers(&[
                ("connection", "Upgrade"),
                ("upgrade", "SPDY/3.1"),
                ("x-stream-protocol-version", "v4.channel.k8s.io"),
            ]))
        );
    }

    #[test]
    fn other_requests_are_refused() {
        for (method, pairs) in [
            (Method::POST, &[("upgrade", "SPDY/3.1")][..]),
            (Method::POST, &[("connection", "upgrade")]),
            (
                Method::POST,
                &[("connection", "upgrade"), ("upgrade", "h2c")],
            ),
            (
                Method::POST,
                &[("connection", "upgrade"), ("upgrade", "websocket")],
            ),
            (Method::GET, &[]),
        ] {
            let refusal = Protocol::of(&method, &headers(pairs)).unwrap_err();
            assert_eq!(refusal.status, http::StatusCode::BAD_REQUEST);
        }
    }
}
