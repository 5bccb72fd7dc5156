//! Parses the values of flags.

use ipnet::Ipv4Net;
use std::time::Duration;

/// Kubernetes' limit of the length of label values and of names of namespaces.
pub(crate) const NAME_MAX: usize = 63;

/// Prefix of the default name of a tenant namespace, followed by the cluster ID.
pub(crate) const TENANT_PREFIX: &str = "liqo-tenant-";

/// Parses `key=value`.
///
/// # Errors
///
/// Returns an error if `=` or the key is missing.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value".to_owned()),
    }
}

/// Parses a duration in the format of Go: `90s`, `2m0s`, `1h30m`, `1.5s`, `500ms`.
///
/// # Errors
///
/// Returns an error if a number or its unit is missing.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write it as 90s, 2m0s or 500ms".to_owned();
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let number: f64 = rest[..digits].parse().map_err(|_| wrong())?;
        let unit_end = rest[digits..]
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .map_or(rest.len(), |at| digits + at);
        let scale = match &rest[digits..unit_end] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(wrong()),
        };
        seconds += number * scale;
        rest = &rest[unit_end..];
    }
    if seconds <= 0.0 {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

/// Returns a duration in the format of Go: `2m0s`, `40s`, `150ms`.
pub(crate) fn show_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0) => format!("{}ms", duration.as_millis()),
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s}s"),
        (h, m, s) => format!("{h}h{m}m{s}s"),
    }
}

/// Parses a cluster ID: a DNS label to which [`TENANT_PREFIX`] can be added.
///
/// # Errors
///
/// Returns an error if the text is no DNS label or is too long.
pub(crate) fn cluster_id(text: &str) -> Result<String, String> {
    let room = NAME_MAX - TENANT_PREFIX.len();
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || !text.chars().all(inner) || text.starts_with('-') || text.ends_with('-') {
        return Err(
            "use lower-case letters, digits and '-', beginning and ending with a letter or digit"
                .to_owned(),
        );
    }
    if text.len() > room {
        return Err(format!(
            "it has {} characters; use {room} at most, because the tenant namespace is named {}<id>",
            text.len(),
            TENANT_PREFIX,
        ));
    }
    Ok(text.to_owned())
}

/// Parses the name of a namespace: a DNS label.
///
/// # Errors
///
/// Returns an error if the text is no DNS label.
pub(crate) fn namespace(text: &str) -> Result<String, String> {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_bounded = !text.is_empty() && !text.starts_with('-') && !text.ends_with('-');
    match is_bounded && text.len() <= NAME_MAX && text.chars().all(inner) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "use at most {NAME_MAX} lower-case letters, digits and '-', beginning and ending with a letter or digit"
        )),
    }
}

/// Parses the name of a ResourceSlice, which labels contain.
///
/// # Errors
///
/// Returns an error if it is empty or too long for a label.
pub(crate) fn slice_name(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("it is empty".to_owned()),
        len if len > NAME_MAX => Err(format!(
            "it has {len} characters; use {NAME_MAX} at most, because labels contain it"
        )),
        _ => Ok(text.to_owned()),
    }
}

/// Parses an amount of a resource in the format of Kubernetes: `2`, `500m`, `4Gi`, `1.5`, `1e3`.
///
/// # Errors
///
/// Returns an error if it is negative or has another format.
pub(crate) fn quantity(text: &str) -> Result<String, String> {
    const SUFFIXES: [&str; 16] = [
        "", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei",
    ];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, suffix) = text.split_at(end.unwrap_or(text.len()));
    let is_exponent = |suffix: &str| {
        let digits = suffix.strip_prefix(['e', 'E']);
        digits.is_some_and(|digits| digits.parse::<i8>().is_ok())
    };
    if number.parse::<f64>().is_err() || !(SUFFIXES.contains(&suffix) || is_exponent(suffix)) {
        return Err("write it as 2, 500m or 4Gi".to_owned());
    }
    Ok(text.to_owned())
}

/// Parses `resource=quantity`.
///
/// # Errors
///
/// Returns an error if the resource or its quantity is missing or invalid.
pub(crate) fn resource(text: &str) -> Result<(String, String), String> {
    let (name, amount) = pair(text)?;
    Ok((name, quantity(&amount)?))
}

/// Parses an IPv4 CIDR whose host bits are zero.
///
/// # Errors
///
/// Returns an error with a valid example, or with the CIDR without its host bits.
pub(crate) fn cidr(text: &str) -> Result<Ipv4Net, String> {
    let net: Ipv4Net = text
        .parse()
        .map_err(|_| "write it as an IPv4 CIDR, for example 10.244.0.0/16".to_owned())?;
    if net != net.trunc() {
        return Err(format!("it has host bits: did you mean {}?", net.trunc()));
    }
    Ok(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_format_of_go() {
        for (text, millis) in [
            ("2m0s", 120_000),
            ("40s", 40_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("500ms", 500),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "5", "s", "5x", "0s", "-1s"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(show_duration(Duration::from_secs(120)), "2m0s");
    }

    #[test]
    fn the_name_of_the_tenant_namespace_limits_a_cluster_id() {
        assert!(cluster_id(&"a".repeat(51)).is_ok());
        assert!(
            cluster_id(&"a".repeat(52))
                .unwrap_err()
                .contains("51 at most")
        );
        for text in ["", "Rome", "-a", "a-", "a.b"] {
            assert!(cluster_id(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_namespace_is_a_dns_label() {
        for text in ["demo", "a", "a-1", &"a".repeat(63)] {
            assert!(namespace(text).is_ok(), "{text}");
        }
        for text in ["", "Demo", "-a", "a-", "a.b", "a/b", &"a".repeat(64)] {
            assert!(namespace(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cidr_with_host_bits_is_refused_with_a_suggestion() {
        assert_eq!(
            cidr("10.244.0.1/16").unwrap_err(),
            "it has host bits: did you mean 10.244.0.0/16?"
        );
        assert!(cidr("fd00::/64").is_err());
    }

    #[test]
    fn quantities_have_the_format_of_kubernetes() {
        for text in ["2", "500m", "4Gi", "1.5", ".5", "1e3", "1E-3", "0"] {
            assert_eq!(quantity(text), Ok(text.to_owned()));
        }
        for text in [
            "", "-1", "4GiB", "1 Gi", "Gi", "1.2.3", "1e", "many", "1ee3",
        ] {
            assert!(quantity(text).is_err(), "{text}");
        }
        assert!(resource("nvidia.com/gpu=2").is_ok());
        assert!(resource("nvidia.com/gpu=x").is_err());
    }

    #[test]
    fn a_pair_has_a_key() {
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("=b").is_err());
    }
}
