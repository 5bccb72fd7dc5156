//! When an image was made, as it claims.

use anyhow::{Context as _, Result};
use std::env;
use std::fmt::{self, Display};
use time::UtcDateTime;

/// What reproducible builds take instead of the clock, in seconds since 1970:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
const VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// When an image was made; by default in 1970, so that images of the same files
/// are the same image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created(UtcDateTime);

impl Created {
    /// What `SOURCE_DATE_EPOCH` says, else the default.
    ///
    /// # Errors
    ///
    /// Returns an error if the variable does not hold a number of seconds.
    pub fn from_environment() -> Result<Self> {
        let Some(seconds) = env::var_os(VARIABLE) else {
            return Ok(Self::default());
        };

        Self::parse(&seconds.to_string_lossy())
    }

    fn parse(seconds: &str) -> Result<Self> {
        let time = seconds.parse().ok();

        time.and_then(|seconds| UtcDateTime::from_unix_timestamp(seconds).ok())
            .map(Self)
            .with_context(|| format!("{VARIABLE}={seconds:?} is no number of seconds since 1970"))
    }
}

impl Default for Created {
    fn default() -> Self {
        Self(UtcDateTime::UNIX_EPOCH)
    }
}

/// As in RFC 3339, which the documents of an image ask for.
impl Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (date, time) = (self.0.date(), self.0.time());
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let (hour, minute, second) = (time.hour(), time.minute(), time.second());

        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_become_a_date() {
        let created = Created::parse("1700000000").unwrap();

        assert_eq!(created.to_string(), "2023-11-14T22:13:20Z");
        assert_eq!(Created::default().to_string(), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn a_date_in_words_is_refused_by_name() {
        let error = Created::parse("yesterday").unwrap_err();

        assert!(error.to_string().starts_with("SOURCE_DATE_EPOCH="));
    }
}
