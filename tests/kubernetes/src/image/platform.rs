//! The platforms that images support.

use anyhow::{Context as _, Result, bail};
use std::env;
use std::fmt::{self, Display};
use std::str::FromStr;

/// A processor architecture, named as in Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Platform {
    /// x86-64.
    Amd64,
    /// AArch64.
    Arm64,
}

impl Platform {
    /// Returns the platform of this machine.
    ///
    /// # Errors
    ///
    /// Returns an error if the architecture is not supported.
    pub fn machine() -> Result<Self> {
        match env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("images support amd64 and arm64, but this machine is {other}"),
        }
    }

    /// Returns the name of the architecture, such as `amd64` in `linux/amd64`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Platform {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> Result<Self> {
        [Self::Amd64, Self::Arm64]
            .into_iter()
            .find(|platform| platform.as_str() == name)
            .with_context(|| format!("{name:?} is neither amd64 nor arm64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn platforms_have_the_names_that_go_uses() {
        for platform in [Platform::Amd64, Platform::Arm64] {
            assert_eq!(platform.to_string().parse::<Platform>().unwrap(), platform);
        }

        let error = "x86_64".parse::<Platform>().unwrap_err();

        assert_eq!(error.to_string(), "\"x86_64\" is neither amd64 nor arm64");
    }
}
