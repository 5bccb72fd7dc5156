//! Checks quantities of resources that peers write, such as `500m` or `2Gi`.

/// Longest text of a quantity, in bytes. The largest number has 19 digits.
const LEN_MAX: usize = 32;

/// Quantities are less than 2^63 (Kubernetes API reference, Quantity).
const VALUE_LIMIT: f64 = 9_223_372_036_854_775_808.0;

/// Suffixes of Kubernetes' quantities, with their factors.
const SUFFIXES: [(&str, f64); 16] = [
    ("Ki", 1_024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("", 1.0),
];

/// Checks a quantity.
///
/// # Errors
///
/// Returns what is wrong with it.
pub(crate) fn check(text: &str) -> Result<(), &'static str> {
    if text.len() > LEN_MAX {
        return Err("too long");
    }
    if text.starts_with('-') {
        return Err("negative");
    }
    let value = value(text.strip_prefix('+').unwrap_or(text)).ok_or("not a quantity")?;
    if value.is_nan() || value >= VALUE_LIMIT {
        return Err("2^63 or more");
    }

    Ok(())
}

fn value(text: &str) -> Option<f64> {
    let is_of_number = |char: char| char.is_ascii_digit() || char == '.';
    let (number, suffix) =
        text.split_at(text.find(|char| !is_of_number(char)).unwrap_or(text.len()));
    let number: f64 = number.parse().ok()?;
    if let Some((_, factor)) = SUFFIXES.iter().find(|(name, _)| *name == suffix) {
        return Some(number * factor);
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;

    Some(number * 10_f64.powi(exponent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_of_kubernetes_are_accepted() {
        for text in [
            "0",
            "4",
            "+4",
            "0.5",
            ".5",
            "5.",
            "100m",
            "8Gi",
            "7Ei",
            "9E",
            "1e3",
            "1E-3",
            "12e+2",
            "9223372036854770000",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, reason) in [
            ("-1", "negative"),
            ("-0.5Gi", "negative"),
            ("8Ei", "2^63 or more"),
            ("9223372036854775808", "2^63 or more"),
            ("1e999999999", "2^63 or more"),
            ("0e999999999", "2^63 or more"),
            ("1e99999999999", "not a quantity"),
            ("", "not a quantity"),
            (".", "not a quantity"),
            ("1.2.3", "not a quantity"),
            ("Gi", "not a quantity"),
            ("1 Gi", "not a quantity"),
            ("1gi", "not a quantity"),
            ("inf", "not a quantity"),
            ("NaN", "not a quantity"),
            ("1e", "not a quantity"),
            ("+-1", "not a quantity"),
            ("1é", "not a quantity"),
            ("000000000000000000000000000000001", "too long"),
        ] {
            assert_eq!(check(text), Err(reason), "{text}");
        }
    }
}
