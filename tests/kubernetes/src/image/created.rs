//! The creation time that an image declares.

use anyhow::{Context as _, Result};
use std::env;
use std::fmt::{self, Display};
use time::UtcDateTime;

/// The environment variable with the creation time of reproducible builds, in seconds since 1970
/// (<https://reproducible-builds.org/specs/source-date-epoch/>).
const VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// The creation time. The default is 1970, so that the same files result in the same image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Created(UtcDateTime);

impl Created {
    /// Returns the time of `SOURCE_DATE_EPOCH`, or the default if the variable is not set.
    ///
    /// # Errors
    ///
    /// Returns an error if the value is not a number of seconds.
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

/// Formats the time according to RFC 3339, as the OCI image specification requires.
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
    fn an_invalid_epoch_is_refused_with_the_name_of_the_variable() {
        let error = Created::parse("yesterday").unwrap_err();

        assert!(error.to_string().starts_with("SOURCE_DATE_EPOCH="));
    }
}
