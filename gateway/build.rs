//! Links the gateway with Intel's multi-buffer library (ipsec-mb), if it is installed.
//!
//! `src/cipher.rs` describes how the library replaces ring's assembly. Without the library, or for
//! another processor than x86-64, the gateway encrypts with ring alone.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// Environment variable with the folder in which the library is installed, such as `/usr/local`.
const PREFIX: &str = "LIQO_IPSEC_MB";

/// The folder in which Debian's package installs the library.
const DEBIAN: &str = "/usr";

/// Debian's package of the library.
const PACKAGE: &str = "libipsec-mb-dev";

const HEADER: &str = "include/intel-ipsec-mb.h";

/// The static library, by distribution. A shared library would make the images' binary dynamic.
const ARCHIVES: [&str; 3] = [
    "lib/x86_64-linux-gnu/libIPSec_MB.a",
    "lib64/libIPSec_MB.a",
    "lib/libIPSec_MB.a",
];

const BINDING: &str = "src/cipher/ipsec_mb.c";

/// The lock file, which has the version of ring.
const LOCK: &str = "../Cargo.lock";

/// The functions of ring that the binding replaces, without ring's prefix.
const REPLACED: [&str; 2] = ["chacha20_poly1305_seal_avx2", "chacha20_poly1305_open_avx2"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rustc-check-cfg=cfg(ipsec_mb)");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={PREFIX}");
    if env::var("CARGO_CFG_TARGET_ARCH")? != "x86_64" {
        return Ok(());
    }

    let prefix = PathBuf::from(env::var_os(PREFIX).unwrap_or_else(|| DEBIAN.into()));
    let header = prefix.join(HEADER);
    let archive = ARCHIVES.iter().map(|path| prefix.join(path));
    let archive = archive.into_iter().find(|path| path.is_file());
    let (Some(archive), true) = (archive, header.is_file()) else {
        // Cargo would run this script at each build if it watched a file that does not exist.
        println!(
            "cargo::rerun-if-changed={}",
            prefix.join("include").display()
        );
        warn("is not installed");
        return Ok(());
    };
    for path in [&header, &archive, Path::new(BINDING), Path::new(LOCK)] {
        println!("cargo::rerun-if-changed={}", path.display());
    }

    let ring = ring_prefix(&fs::read_to_string(LOCK)?).ok_or("Cargo.lock has no ring")?;
    let compiled = cc::Build::new()
        .file(BINDING)
        .include(prefix.join("include"))
        .define("RING", ring.as_str())
        .try_compile("liqo_cipher");
    if let Err(error) = compiled {
        warn(&format!("cannot be used: {error}"));
        return Ok(());
    }
    // The full path, because with `-L` the linker would also search glibc in the archive's folder,
    // and the images' binary is linked with musl.
    println!("cargo::rustc-link-arg={}", archive.display());
    for function in REPLACED {
        println!("cargo::rustc-link-arg=-Wl,--wrap={ring}{function}");
    }
    println!("cargo::rustc-cfg=ipsec_mb");

    Ok(())
}

fn warn(problem: &str) {
    let problem = problem.replace('\n', " ");
    println!(
        "cargo::warning=Intel's multi-buffer library {problem}, so the gateway encrypts with ring only, which takes more CPU time on CPUs with AVX-512: install Debian's package {PACKAGE} (`cargo xtask setup` does)"
    );
}

/// Returns the prefix of the symbols of ring, such as `ring_core_0_17_14__`.
fn ring_prefix(lock: &str) -> Option<String> {
    let (_, package) = lock.split_once("name = \"ring\"\nversion = \"")?;
    let (version, _) = package.split_once('"')?;

    Some(format!("ring_core_{}__", version.replace('.', "_")))
}
