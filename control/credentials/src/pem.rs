//! One PEM block (RFC 7468) in a text of a peer.

use x509_cert::der::pem::{self, LineEnding};

/// Longest PEM text, in bytes. A certificate with an RSA key of 8,192 bits has less than 4 KiB.
pub(crate) const LEN_MAX: usize = 64 << 10;

/// Returns the DER in the only block of the text, which may end with one line break.
pub(crate) fn decode(label: &str, text: &[u8]) -> Result<Vec<u8>, String> {
    if text.len() > LEN_MAX {
        return Err(format!("it is longer than {} KiB", LEN_MAX >> 10));
    }
    let (found, der) = pem::decode_vec(text).map_err(|error| error.to_string())?;
    if found != label {
        return Err(format!("it is a PEM block `{found}`, not `{label}`"));
    }

    Ok(der)
}

/// Returns the block as text, with a line break at the end.
pub(crate) fn encode(label: &'static str, der: &[u8]) -> String {
    pem::encode_string(label, LineEnding::LF, der).unwrap_or_default()
}
