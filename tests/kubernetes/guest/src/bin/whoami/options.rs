//! Parses the command line of `whoami`.

use std::net::IpAddr;

const USAGE: &str = "usage: whoami [--port N] [--address IP]";

/// The default of `--port`.
const PORT: u16 = 8080;

/// The options on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    /// The TCP port. With 0, the kernel chooses a port.
    pub(crate) port: u16,
    /// The listening IP address. `None` means all addresses.
    pub(crate) address: Option<IpAddr>,
}

impl Options {
    /// Parses the arguments after the program's name.
    ///
    /// # Errors
    ///
    /// Returns an error message with the usage.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            port: PORT,
            address: None,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (name, value) = match argument.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (argument, arguments.next()),
            };
            let value = value.unwrap_or_default();
            let refused = || format!("{name} {value}: not understood; {USAGE}");
            match name.as_str() {
                "--port" => options.port = value.parse().map_err(|_| refused())?,
                "--address" => options.address = Some(value.parse().map_err(|_| refused())?),
                _ => return Err(refused()),
            }
        }

        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_a_separate_argument_or_follows_an_equals_sign() {
        let options = parse(&["--port=80", "--address", "::1"]).unwrap();

        assert_eq!(options.port, 80);
        assert_eq!(options.address, Some("::1".parse().unwrap()));
        assert_eq!(parse(&[]).unwrap().port, 8080);
    }

    #[test]
    fn invalid_arguments_return_the_usage() {
        for arguments in [&["--port"][..], &["--port", "70000"], &["--help"]] {
            assert!(parse(arguments).unwrap_err().ends_with(USAGE));
        }
    }

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        Options::parse(arguments.iter().copied().map(str::to_owned))
    }
}
