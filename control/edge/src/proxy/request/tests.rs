//! Tests of single heads, and properties of all of them.

use super::*;
use proptest::prelude::*;

const CONNECT: &str =
    "CONNECT kubernetes.default.svc:443 HTTP/1.1\r\nHost: kubernetes.default.svc:443\r\n\r\n";

#[test]
fn the_target_of_a_connect_request_does_not_matter() {
    for target in [
        "kubernetes.default.svc:443",
        "203.0.113.7:6443",
        "x",
        "[::1]:22",
    ] {
        for version in ["1.0", "1.1"] {
            let head = format!("CONNECT {target} HTTP/{version}\r\n\r\n");
            assert_eq!(read(head.as_bytes()), connect(b""), "{head:?}");
        }
    }
}

#[test]
fn bytes_after_the_head_are_early_data() {
    let request = [CONNECT.as_bytes(), b"\x16\x03\x01\r\n\r\n"].concat();

    assert_eq!(read(&request), connect(b"\x16\x03\x01\r\n\r\n"));
}

#[test]
fn other_requests_are_refused_with_the_reason() {
    for (line, refusal) in [
        ("GET http://example.com/ HTTP/1.1", Refusal::Method),
        ("connect x:443 HTTP/1.1", Refusal::Method),
        ("CONNECT x:443 HTTP/2", Refusal::Version),
        ("CONNECT x:443 HTTP/1.2", Refusal::Version),
        ("PRI * HTTP/2.0", Refusal::Version),
        ("CONNECT x:443", Refusal::Malformed),
        ("CONNECT  HTTP/1.1", Refusal::Malformed),
        ("CONNECT x:443  HTTP/1.1", Refusal::Malformed),
        ("CONNECT x:\x01 HTTP/1.1", Refusal::Malformed),
        ("CONN\tECT x:443 HTTP/1.1", Refusal::Malformed),
        ("CONNECT x:443 FTP/1.1", Refusal::Malformed),
        (" x:443 HTTP/1.1", Refusal::Malformed),
        ("", Refusal::Malformed),
    ] {
        let head = format!("{line}\r\n\r\n");
        assert_eq!(
            read(head.as_bytes()),
            Progress::Refused(refusal),
            "{line:?}"
        );
    }
}

#[test]
fn a_refusal_waits_for_the_end_of_the_head() {
    let mut reader = HeadReader::default();

    assert_eq!(reader.push(b"GET / HTTP/1.1\r\n"), Progress::Incomplete);
    assert_eq!(reader.push(b"\r\n"), Progress::Refused(Refusal::Method));
}

#[test]
fn a_head_has_at_most_8_kib() {
    let filled = |len: usize| {
        let start = "CONNECT x:443 HTTP/1.1\r\nX: ";
        let filler = "a".repeat(len - start.len() - HEAD_END.len());
        format!("{start}{filler}\r\n\r\n")
    };

    assert_eq!(read(filled(HEAD_LEN_MAX).as_bytes()), connect(b""));
    let longer = filled(HEAD_LEN_MAX + 1);
    assert_eq!(read(longer.as_bytes()), Progress::Refused(Refusal::TooLong));
    let endless = "a".repeat(HEAD_LEN_MAX);
    assert_eq!(
        read(endless.as_bytes()),
        Progress::Refused(Refusal::TooLong)
    );
}

proptest! {
    #[test]
    fn the_result_does_not_depend_on_the_pieces(
        request in request(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(request.len() + 1)).collect();
        cuts.sort_unstable();
        let mut reader = HeadReader::default();
        let mut progress = Progress::Incomplete;
        let mut start = 0;
        for end in cuts.into_iter().chain([request.len()]) {
            let piece = &request[start..end];
            match &mut progress {
                Progress::Incomplete => progress = reader.push(piece),
                Progress::Connect { early_data } => early_data.extend_from_slice(piece),
                Progress::Refused(_) => {}
            }
            start = end;
        }

        prop_assert_eq!(progress, read(&request));
    }

    #[test]
    fn nothing_but_connect_is_forwarded(request in request()) {
        if let Progress::Connect { early_data } = read(&request) {
            let head = &request[..request.len() - early_data.len()];
            prop_assert!(head.starts_with(b"CONNECT "));
            prop_assert!(head.ends_with(HEAD_END));
            prop_assert!(head.len() <= HEAD_LEN_MAX);
        }
    }
}

/// Requests that are nearly valid, with early data, and bytes without meaning.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![4 => Just("CONNECT".to_owned()), 1 => "[A-Za-z \r\n]{0,8}"];
    let version = prop_oneof![4 => Just("HTTP/1.1".to_owned()), 1 => "HTTP/[0-9.]{0,3}"];
    let filler = prop_oneof![4 => 0..100_usize, 1 => HEAD_LEN_MAX - 60..HEAD_LEN_MAX];
    let rest = prop::collection::vec(any::<u8>(), 0..20);
    let near = (method, "[ -~]{0,12}", version, filler, rest).prop_map(
        |(method, target, version, filler, rest)| {
            let filler = "a".repeat(filler);
            let head = format!("{method} {target} {version}\r\nX: {filler}\r\n\r\n");
            [head.into_bytes(), rest].concat()
        },
    );
    let noise = prop::collection::vec(prop_oneof![any::<u8>(), Just(b'\r'), Just(b'\n')], 0..64);

    prop_oneof![3 => near, 1 => noise]
}

fn read(request: &[u8]) -> Progress {
    HeadReader::default().push(request)
}

fn connect(early_data: &[u8]) -> Progress {
    Progress::Connect {
        early_data: early_data.to_vec(),
    }
}
