//! Clocks of the manager, the API server and the signer that differ by a day.

use super::side::{MOMENT, Side};
use super::slices::{condition, slice, status};
use super::{HOUR, certificate, ed25519, proof};
use control_api::ResourceSlice;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::{Value, json};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Returns `milan` two days after its start, with a Tenant of `rome`.
fn milan() -> Side {
    let mut milan = Side::new("milan");
    milan.run(2 * DAY);
    milan.put_peer("rome");
    milan.put_nonce("rome");
    milan.run(MOMENT);
    let nonce = milan.secret("rome", "liqo-nonce", "nonce").unwrap();
    milan.put_tenant("rome", &proof(&ed25519(1), &nonce));

    milan
}

#[test]
fn a_signer_whose_clock_differs_by_a_day_issues_usable_certificates_and_is_reported() {
    for is_ahead in [true, false] {
        let mut milan = milan();
        milan.run(2 * MOMENT);
        let now = match is_ahead {
            true => milan.elapsed() + DAY,
            false => milan.elapsed() - DAY,
        };
        milan.sign_at(now, YEAR);
        milan.run(MOMENT);
        let issued = certificate(&mut milan);
        assert!(issued.is_some(), "ahead: {is_ahead}");
        // One that is not valid yet is also unusable for an API server with the manager's clock.
        assert_eq!(milan.reasons().contains(&"ClockSkew"), is_ahead);
        milan.run(30 * DAY);
        assert_eq!(milan.creations::<CertificateSigningRequest>(), 1);
        assert_eq!(certificate(&mut milan), issued);
    }
}

/// Certificates of a day have expired when they arrive, and are renewed at the shortest interval.
#[test]
fn certificates_that_have_expired_when_they_arrive_are_reported_and_cause_no_loop() {
    let mut milan = milan();
    milan.run(2 * MOMENT);
    for _ in 0..30 {
        milan.sign_at(milan.elapsed() - DAY, HOUR);
        milan.run(Duration::from_secs(2));
    }
    assert!(milan.reasons().contains(&"ClockSkew"));
    let requests = milan.creations::<CertificateSigningRequest>();
    assert!((2..=7).contains(&requests), "{requests} in a minute");

    // The clock is corrected.
    for _ in 0..10 {
        milan.sign(YEAR);
        milan.run(Duration::from_secs(2));
    }
    let requests = milan.creations::<CertificateSigningRequest>();
    milan.run(30 * DAY);
    assert_eq!(milan.creations::<CertificateSigningRequest>(), requests);
}

/// The API server writes the time of creation. By the clock of a manager that is ahead, the signer has exceeded its time at
/// once.
#[test]
fn a_signer_has_its_time_although_the_api_server_s_clock_is_a_day_behind() {
    let mut milan = milan();
    milan.set_request_defaults(|csr| {
        csr["metadata"]["creationTimestamp"] = json!("1970-01-01T00:00:00Z");
    });
    milan.run(2 * MOMENT);
    milan.sign(YEAR);
    milan.run(MOMENT);
    assert!(certificate(&mut milan).is_some());
    let requested = slice("milan", &ed25519(1), &json!({}));
    milan.put::<ResourceSlice>(requested);
    milan.run(2 * MOMENT);
    assert_eq!(status(&mut milan, "milan"), Value::Null);
    assert!(!milan.reasons().contains(&"SignerTimeout"));
    milan.sign(YEAR);
    milan.run(MOMENT);
    let accepted = status(&mut milan, "milan");
    assert_eq!(condition(&accepted, "Authentication").0, "Accepted");

    milan.put::<ResourceSlice>(slice("other", &ed25519(1), &json!({})));
    milan.run(Duration::from_secs(40));
    assert!(milan.reasons().contains(&"SignerTimeout"));
    let denied = status(&mut milan, "other");
    assert_eq!(condition(&denied, "Authentication").0, "Denied");
}

#[test]
fn a_signer_has_its_time_although_the_api_server_s_clock_is_a_day_ahead() {
    let mut milan = milan();
    milan.set_request_defaults(|csr| {
        csr["metadata"]["creationTimestamp"] = json!("1970-01-04T00:00:00Z");
    });
    milan.run(Duration::from_secs(40));
    assert!(milan.reasons().contains(&"SignerTimeout"));
    milan.sign(YEAR);
    milan.run(MOMENT);
    assert!(certificate(&mut milan).is_some());
}
