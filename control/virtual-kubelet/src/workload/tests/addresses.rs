//! Addresses of remote pods while networking with the provider is off.

use super::*;

/// Returns `rome` with a remote pod of this address, and without networking.
fn rome_with(address: &str, reflects_ips: bool) -> Side {
    let mut settings = settings();
    settings.remaps.clear();
    settings.reserved = ["10.244.0.0/16", "10.96.0.0/12"]
        .map(|it| it.parse().unwrap())
        .into();
    settings.reflects_ips = reflects_ips;
    let mut rome = Side::with_settings(1, settings);
    rome.put_map("Accepted");
    rome.put_pod("web");
    rome.pass();
    rome.put_remote("web", &running(address));
    rome
}

#[test]
fn an_address_that_nothing_here_has_is_reflected_as_it_is() {
    let mut rome = rome_with("10.32.1.7", true);

    assert_eq!(rome.pod("web")["status"]["podIP"], "10.32.1.7");
    assert_eq!(rome.events(), [""; 0]);
}

#[test]
fn an_address_that_is_in_use_here_is_empty_with_one_event() {
    let mut rome = rome_with("10.244.1.7", true);
    rome.edit::<Pod>(&pod_key(), |pod| {
        pod["metadata"]["labels"]["version"] = json!("2");
    });

    let status = rome.pod("web")["status"].clone();
    assert_eq!(status["phase"], "Running");
    assert_eq!(
        (&status["podIP"], &status["podIPs"]),
        (&Value::Null, &Value::Null)
    );
    let [event] = &rome.events()[..] else {
        panic!("{:?}", rome.events());
    };
    let expected = "PodIPNotReflected: the pod has the address 10.244.1.7 at the provider, which is in 10.244.0.0/16";
    assert!(event.starts_with(expected), "{event}");
}

#[test]
fn no_address_is_reflected_if_the_reflection_is_off() {
    for address in ["10.32.1.7", "10.244.1.7"] {
        let mut rome = rome_with(address, false);

        assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null);
        assert_eq!(rome.events(), [""; 0]);
    }
}

#[test]
fn addresses_that_are_of_no_pod_network_are_not_reflected() {
    for address in [
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "0.0.0.0",
        "fd00::1",
        "x",
    ] {
        let mut rome = rome_with(address, true);

        assert_eq!(rome.pod("web")["status"]["podIP"], Value::Null, "{address}");
    }
}
