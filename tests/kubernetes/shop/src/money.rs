//! Amounts of money. All calculations use integers.

use crate::message::Money;
use std::fmt::{self, Display};
use tonic::Status;

/// A currency that the shop accepts.
pub(crate) struct Currency {
    /// The ISO 4217 code.
    pub(crate) code: &'static str,
    /// The value of one euro, in millionths of this currency.
    per_euro: i64,
    /// The smallest coin, in hundredths of this currency.
    coin: i64,
}

/// The rates are fixed, so that tests can predict prices.
const CURRENCIES: [Currency; 5] = [
    currency("EUR", 1_000_000, 1),
    currency("CHF", 950_000, 1),
    currency("GBP", 850_000, 1),
    currency("JPY", 163_500_000, 100),
    currency("USD", 1_080_000, 1),
];

/// A calculation with money is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MoneyError {
    /// The shop does not accept the currency.
    #[error("the currency {0:?} is unknown: choose one of EUR, CHF, GBP, JPY, USD")]
    Unknown(String),
    /// Amounts of different currencies cannot be added.
    #[error("{0} cannot be added to {1}: convert it first")]
    Mismatch(String, String),
    /// The amount exceeds 64 bits.
    #[error("the amount is too large: order less")]
    Overflow,
}

impl From<MoneyError> for Status {
    fn from(error: MoneyError) -> Self {
        Self::invalid_argument(error.to_string())
    }
}

/// Returns the codes of all currencies.
pub(crate) fn codes() -> impl Iterator<Item = &'static str> {
    CURRENCIES.iter().map(|currency| currency.code)
}

impl Money {
    /// Creates an amount in hundredths of a currency.
    pub(crate) fn new(currency: &str, cents: i64) -> Self {
        Self {
            currency: currency.to_owned(),
            cents,
        }
    }

    /// Adds an amount of the same currency.
    pub(crate) fn plus(&self, other: &Self) -> Result<Self, MoneyError> {
        if self.currency != other.currency {
            let (mine, theirs) = (self.currency.clone(), other.currency.clone());
            return Err(MoneyError::Mismatch(theirs, mine));
        }
        let cents = self.cents.checked_add(other.cents);

        Ok(Self::new(
            &self.currency,
            cents.ok_or(MoneyError::Overflow)?,
        ))
    }

    /// Multiplies the amount by a quantity.
    pub(crate) fn times(&self, quantity: u32) -> Result<Self, MoneyError> {
        let cents = self.cents.checked_mul(quantity.into());

        Ok(Self::new(
            &self.currency,
            cents.ok_or(MoneyError::Overflow)?,
        ))
    }

    /// Converts the amount to another currency, rounded half away from zero to its smallest coin.
    pub(crate) fn convert(&self, to: &str) -> Result<Self, MoneyError> {
        let (from, to) = (find(&self.currency)?, find(to)?);
        let numerator = i128::from(self.cents) * i128::from(to.per_euro);
        let denominator = i128::from(from.per_euro) * i128::from(to.coin);
        let half = denominator / 2 * numerator.signum();
        let cents = (numerator + half) / denominator * i128::from(to.coin);

        match i64::try_from(cents) {
            Ok(cents) => Ok(Self::new(to.code, cents)),
            Err(_) => Err(MoneyError::Overflow),
        }
    }
}

impl Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.cents < 0 { "-" } else { "" };
        let (units, cents) = (
            self.cents.unsigned_abs() / 100,
            self.cents.unsigned_abs() % 100,
        );
        write!(f, "{} {sign}{units}", self.currency)?;
        if find(&self.currency).is_ok_and(|currency| currency.coin == 100) {
            return Ok(());
        }

        write!(f, ".{cents:02}")
    }
}

/// Returns the currency with a code.
pub(crate) fn find(code: &str) -> Result<&'static Currency, MoneyError> {
    let found = CURRENCIES.iter().find(|currency| currency.code == code);

    found.ok_or_else(|| MoneyError::Unknown(code.to_owned()))
}

const fn currency(code: &'static str, per_euro: i64, coin: i64) -> Currency {
    Currency {
        code,
        per_euro,
        coin,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_to_the_smallest_coin() {
        let euros = |cents| Money::new("EUR", cents);

        assert_eq!(euros(1999).convert("USD").unwrap().to_string(), "USD 21.59");
        assert_eq!(euros(1000).convert("JPY").unwrap().to_string(), "JPY 1635");
        assert_eq!(euros(101).convert("JPY").unwrap().to_string(), "JPY 165");
        assert_eq!(euros(-101).convert("JPY").unwrap().to_string(), "JPY -165");
        assert_eq!(euros(-5).to_string(), "EUR -0.05");
        assert_eq!(euros(7).convert("EUR").unwrap(), euros(7));
    }

    #[test]
    fn impossible_calculations_are_errors() {
        let most = Money::new("EUR", i64::MAX);
        let dollar = Money::new("USD", 100);

        assert_eq!(most.plus(&Money::new("EUR", 1)), Err(MoneyError::Overflow));
        assert_eq!(most.times(2), Err(MoneyError::Overflow));
        assert_eq!(most.convert("JPY"), Err(MoneyError::Overflow));
        assert!(matches!(most.plus(&dollar), Err(MoneyError::Mismatch(..))));
        assert!(matches!(dollar.convert("XXX"), Err(MoneyError::Unknown(_))));
    }
}
