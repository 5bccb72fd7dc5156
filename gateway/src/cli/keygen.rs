//! The command `gateway keygen`.

use crate::engine;
use crate::shell::keys;
use anyhow::Context as _;
use clap::Args;
use k8s_openapi::ByteString;
use std::io::Write;
use std::path::PathBuf;

/// Generate a WireGuard key and print its public key.
///
/// Writes 32 raw bytes to DIR/privateKey, which only its owner can read. Never overwrites an
/// existing key. Prints the PublicKey object for the fabric file of the other cluster.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Keygen {
    /// Directory of the key: KEYS/SECRET. `gateway run --keys KEYS` reads the key from there.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// This cluster's id, for the PublicKey object.
    #[arg(long, value_name = "ID", default_value = "THIS-CLUSTER-ID")]
    cluster_id: String,
}

const EXAMPLES: &str = "\
Examples:
  gateway keygen keys/gw-milan
  gateway keygen keys/gw-milan --cluster-id rome >> ../milan/fabric.yaml";

impl Keygen {
    pub(super) fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let private = keys::generate(&self.directory)?;
        let public = base64(&engine::public_key(&private))?;
        let id = self.cluster_id;
        writeln!(
            out,
            "---\n\
             # The public key of cluster {id}, for its peer's fabric file.\n\
             apiVersion: networking.liqo.io/v1beta1\n\
             kind: PublicKey\n\
             metadata:\n  \
               name: gw-{id}\n  \
               labels:\n    \
                 liqo.io/remote-cluster-id: {id}\n\
             spec:\n  \
               publicKey: {public}"
        )?;

        Ok(())
    }
}

/// Encodes bytes as base64, as in a custom resource.
fn base64(bytes: &[u8]) -> anyhow::Result<String> {
    let value = serde_json::to_value(ByteString(bytes.to_vec()))?;
    value
        .as_str()
        .map(str::to_owned)
        .context("the JSON encoding of a byte string is not a string")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::PrivateKey;

    #[test]
    fn the_output_is_one_object_with_the_public_key() {
        let directory = std::env::temp_dir().join(format!("lq-keygen-{}", std::process::id()));
        let command = Keygen {
            directory: directory.clone(),
            cluster_id: "rome".into(),
        };
        let mut out = Vec::new();

        let result = command.run(&mut out);
        let private = std::fs::read(directory.join("privateKey"));
        let _ = std::fs::remove_dir_all(&directory);

        result.unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(
            control_fabric::parse(&text).unwrap().iter().count(),
            1,
            "{text}"
        );
        let private = PrivateKey::from_slice(&private.unwrap()).unwrap();
        let public = engine::public_key(&private);
        assert!(text.contains(&base64(&public).unwrap()));
    }
}
