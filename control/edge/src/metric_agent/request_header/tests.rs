use super::*;
use http::HeaderValue;

fn data(changes: &[(&str, Option<&str>)]) -> BTreeMap<String, String> {
    let key = rcgen::generate_simple_self_signed(["ca".to_owned()]).unwrap();
    let mut data: BTreeMap<String, String> = [
        ("requestheader-client-ca-file", key.cert.pem().as_str()),
        ("requestheader-allowed-names", "[\"front-proxy-client\"]"),
        ("requestheader-username-headers", "[\"X-Remote-User\"]"),
        (
            "requestheader-group-headers",
            "[\"X-Remote-Group\",\"X-Team\"]",
        ),
        (
            "requestheader-extra-headers-prefix",
            "[\"X-Remote-Extra-\"]",
        ),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    for (key, value) in changes {
        match value {
            Some(value) => drop(data.insert((*key).to_owned(), (*value).to_owned())),
            None => drop(data.remove(*key)),
        }
    }
    data
}

fn fields(fields: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        map.append(*name, HeaderValue::from_bytes(value).unwrap());
    }
    map
}

#[test]
fn the_requester_has_all_groups_and_extra_values() {
    let trust = Trust::parse(&data(&[])).unwrap();

    let requester = trust.read(&fields(&[
        ("x-remote-user", b"anna"),
        ("x-remote-group", b"rome"),
        ("x-team", b"shop"),
        ("x-remote-group", b"system:authenticated"),
        ("x-remote-extra-example.com%2fscope", b"a"),
        ("x-remote-extra-example.com%2fscope", b"b"),
        ("x-remote-extra-", b"ignored"),
        ("x-other-group", b"admins"),
    ]));

    let requester = requester.unwrap();
    assert_eq!(requester.user, "anna");
    let groups = ["rome", "shop", "system:authenticated"];
    assert_eq!(requester.groups, groups.map(str::to_owned).into());
    assert_eq!(requester.extra.len(), 1);
    assert_eq!(requester.extra["example.com/scope"], ["a", "b"]);
}

#[test]
fn fields_that_cannot_be_read_name_no_requester() {
    let trust = Trust::parse(&data(&[])).unwrap();
    let user: (&str, &[u8]) = ("x-remote-user", b"anna");
    for invalid in [
        fields(&[]),
        fields(&[("x-remote-user", b"")]),
        fields(&[("x-remote-user", b"\xff")]),
        fields(&[user, ("x-remote-group", b"\xff\xfe")]),
        fields(&[user, ("x-remote-extra-a%ff", b"b")]),
        fields(&[user, ("x-remote-extra-a", b"\xff")]),
    ] {
        assert_eq!(trust.read(&invalid), None, "{invalid:?}");
    }
    let many: Vec<_> = (0..=GROUPS_MAX).map(|it| it.to_string()).collect();
    let mut map = fields(&[user]);
    for group in &many {
        map.append("x-remote-group", HeaderValue::from_str(group).unwrap());
    }
    assert_eq!(trust.read(&map), None);
}

#[test]
fn a_config_map_that_cannot_be_used_names_the_flag() {
    let invalid = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    let long = "x".repeat(BUNDLE_LEN_MAX + 1);
    let authority = "requestheader-client-ca-file";
    for (key, value, error) in [
        (authority, None, TrustError::Missing(authority)),
        (authority, Some(""), TrustError::Invalid(authority)),
        (authority, Some(invalid), TrustError::Invalid(authority)),
        (
            authority,
            Some(long.as_str()),
            TrustError::Invalid(authority),
        ),
        (
            "requestheader-allowed-names",
            Some("front-proxy-client"),
            TrustError::Invalid("requestheader-allowed-names"),
        ),
        (
            "requestheader-username-headers",
            None,
            TrustError::Missing("requestheader-username-headers"),
        ),
        (
            "client-ca-file",
            Some("none"),
            TrustError::Invalid("client-ca-file"),
        ),
    ] {
        assert_eq!(
            Trust::parse(&data(&[(key, value)])),
            Err(error),
            "{key} {value:?}"
        );
    }
}

#[test]
fn a_certificate_of_the_clients_authority_needs_a_name() {
    let mut shared = data(&[]);
    let authority = shared["requestheader-client-ca-file"].clone();
    shared.insert("client-ca-file".to_owned(), authority);
    assert!(Trust::parse(&shared).is_ok());

    for names in ["[]", ""] {
        match names {
            "" => drop(shared.remove("requestheader-allowed-names")),
            names => {
                drop(shared.insert("requestheader-allowed-names".to_owned(), names.to_owned()))
            }
        }
        assert_eq!(Trust::parse(&shared), Err(TrustError::SharedAuthority));
    }
}
