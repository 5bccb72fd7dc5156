//! Checks and compares quantities of resources that peers write, such as `500m` or `2Gi`.

use std::fmt;

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
pub fn check(text: &str) -> Result<(), &'static str> {
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

/// An exact amount of a resource that is not negative, in 10^-9, the smallest unit of Kubernetes' quantities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(u128);

/// The number 1 as an amount.
const ONE: u128 = 1_000_000_000;

impl Amount {
    /// The number 1.
    pub const ONE: Self = Self(ONE);

    /// 2^63, which is more than any quantity. Sums of it are exact.
    pub const MAX: Self = Self(ONE << 63);

    /// Returns the sum.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the amount with a binary suffix, such as `1.5Gi`, rounded down to two decimals.
    pub fn binary(self) -> String {
        let binary = BINARY.into_iter().rev().zip((1..=6).rev());
        let mut fitting = binary.filter(|(_, power)| self.0 >= ONE * 1024_u128.pow(*power));
        let (suffix, power) = fitting.next().unwrap_or(("", 0));
        let hundredths = self.0 / (ONE / 100) / 1024_u128.pow(power);
        let rounded = Self(hundredths * (ONE / 100));

        format!("{rounded}{suffix}")
    }

    /// Returns the share of another amount in percent, rounded down; `None` if that is zero.
    pub fn percent_of(self, whole: Self) -> Option<u128> {
        self.0.saturating_mul(100).checked_div(whole.0)
    }

    /// Returns the difference, or zero.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fraction = format!("{:09}", self.0 % ONE);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };

        write!(f, "{}{point}{fraction}", self.0 / ONE)
    }
}

/// Returns the amount of a quantity; `None` if [`check`] refuses it. What is smaller than the unit is rounded up, as by
/// Kubernetes.
pub fn amount(text: &str) -> Option<Amount> {
    check(text).ok()?;
    let text = text.strip_prefix('+').unwrap_or(text);
    let is_of_number = |char: char| char.is_ascii_digit() || char == '.';
    let (number, suffix) =
        text.split_at(text.find(|char| !is_of_number(char)).unwrap_or(text.len()));
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    let digits: u128 = format!("0{whole}{fraction}").parse().ok()?;
    let (factor, exponent) = scale(suffix)?;
    let scaled = digits.checked_mul(factor)?;
    let power = exponent + 9 - i32::try_from(fraction.len()).ok()?;
    let ten = 10_u128.checked_pow(power.unsigned_abs());
    let amount = match ten {
        _ if scaled == 0 => 0,
        Some(ten) if power >= 0 => scaled.checked_mul(ten)?,
        Some(ten) => scaled.div_ceil(ten),
        None if power >= 0 => return None,
        None => 1,
    };

    Some(Amount(amount))
}

/// Binary suffixes: the powers of 1024, from the first on.
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Returns what a suffix stands for: a factor, and a power of ten.
fn scale(suffix: &str) -> Option<(u128, i32)> {
    let decimal = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    if let Some((power, _)) = (1..).zip(BINARY).find(|(_, name)| *name == suffix) {
        return Some((1024_u128.pow(power), 0));
    }
    if let Some((power, _)) = (-3..).zip(decimal).find(|(_, name)| *name == suffix) {
        return Some((1, 3 * power));
    }
    let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;

    Some((1, exponent.clamp(-1000, 1000)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn amounts_are_exact() {
        for (text, shown) in [
            ("0", "0"),
            ("4", "4"),
            ("+4", "4"),
            ("100m", "0.1"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1.5Gi", "1610612736"),
            ("0.1Ki", "102.4"),
            ("8Gi", "8589934592"),
            ("7Ei", "8070450532247928832"),
            ("1e3", "1000"),
            ("25e-1", "2.5"),
            ("1n", "0.000000001"),
            ("0.1n", "0.000000001"),
            ("1e-12", "0.000000001"),
            ("1e-99", "0.000000001"),
            ("0e10", "0"),
            ("6.8719476736e+10", "68719476736"),
            ("9223372036854770000", "9223372036854770000"),
        ] {
            assert_eq!(amount(text).unwrap().to_string(), shown, "{text}");
        }
        for text in ["-1", "lots", "8Ei", "1e40"] {
            assert_eq!(amount(text), None, "{text}");
        }
        assert_eq!(amount("1000m"), amount("1"));
        assert_eq!(amount("1024Mi"), amount("1Gi"));
        assert!(amount("1500m") > amount("1"));
    }

    #[test]
    fn amounts_of_memory_are_shown_with_binary_suffixes() {
        for (text, shown) in [
            ("0", "0"),
            ("1023", "1023"),
            ("1Ki", "1Ki"),
            ("1536Mi", "1.5Gi"),
            ("1025Mi", "1Gi"),
            ("20G", "18.62Gi"),
            ("7Ei", "7Ei"),
        ] {
            assert_eq!(amount(text).unwrap().binary(), shown, "{text}");
        }
        assert!(Amount::MAX.binary().ends_with("Ei"));
    }

    #[test]
    fn a_share_of_nothing_is_unknown() {
        let percent = |part, whole| amount(part).unwrap().percent_of(amount(whole).unwrap());

        assert_eq!(percent("1500m", "20"), Some(7));
        assert_eq!(percent("3Gi", "2Gi"), Some(150));
        assert_eq!(percent("1", "0"), None);
    }

    proptest! {
        #[test]
        fn an_amount_is_the_value_that_is_checked(
            whole in 0_u64..100_000_000, fraction in "[0-9]{0,12}", suffix in 0_usize..SUFFIXES.len(),
        ) {
            let text = format!("{whole}.{fraction}{}", SUFFIXES[suffix].0);
            if let Some(amount) = amount(&text) {
                let expected = value(&text).unwrap();
                let shown: f64 = amount.to_string().parse().unwrap();
                prop_assert!((shown - expected).abs() <= expected * 1e-9 + 2e-9, "{text}: {shown} {expected}");
            } else {
                prop_assert!(check(&text).is_err(), "{text}");
            }
        }
    }

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
