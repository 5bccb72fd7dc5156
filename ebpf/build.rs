//! Builds the eBPF programs, which this crate embeds.
//!
//! The script starts a second cargo, because the programs have their own target, compiler flags and
//! lock file. The second cargo inherits only the environment variables in `PASSED`: compiler
//! wrappers, flags and linkers of the first cargo do not work for the BPF target.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

/// Environment variables that the second cargo, the compiler and the linker need.
const PASSED: [&str; 9] = [
    "PATH",
    "HOME",
    "CARGO_HOME",
    "CARGO_HTTP_CAINFO",
    "CARGO_NET_OFFLINE",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "SSL_CERT_FILE",
    "TMPDIR",
];

/// Environment variable with the path of an alternative rustc, for systems without rustup.
const COMPILER: &str = "LIQO_EBPF_RUSTC";

fn main() {
    let program = manifest_dir().join("program");
    for path in ["src", "Cargo.toml", "Cargo.lock", ".cargo/config.toml"] {
        println!("cargo::rerun-if-changed={}", program.join(path).display());
    }
    println!("cargo::rerun-if-changed=common/src");
    println!("cargo::rerun-if-changed=common/Cargo.toml");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={COMPILER}");

    let compiler = env::var_os(COMPILER).unwrap_or_else(|| variable("RUSTC"));
    if let Some(missing) = missing(&compiler) {
        fail(&format!(
            "the eBPF toolchain is missing ({missing}): run cargo xtask setup"
        ));
    }

    let target_dir = PathBuf::from(variable("OUT_DIR")).join("program");
    let object = build(&program, &target_dir, &compiler);
    println!("cargo::rustc-env=LIQO_EBPF_OBJECT={}", object.display());
}

/// Returns the first part of the toolchain that is missing, if any.
fn missing(compiler: &OsString) -> Option<&'static str> {
    match Command::new("bpf-linker").arg("--version").output() {
        Err(_) => return Some("bpf-linker"),
        Ok(output) if !output.status.success() => return Some("LLVM"),
        Ok(_) => {}
    }

    let sysroot = Command::new(compiler)
        .args(["--print", "sysroot"])
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let sources = Path::new(sysroot.as_deref().unwrap_or_default().trim())
        .join("lib/rustlib/src/rust/library/core/Cargo.toml");

    (!sources.exists()).then_some("rust-src")
}

fn build(program: &Path, target_dir: &Path, compiler: &OsString) -> PathBuf {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .current_dir(program)
        .args(["build", "--release", "--locked", "--quiet", "--target-dir"])
        .arg(target_dir)
        .env_clear()
        .envs(
            PASSED
                .iter()
                .filter_map(|&name| Some((name, env::var_os(name)?))),
        )
        .env("RUSTC", compiler)
        // A stable compiler accepts `-Zbuild-std` only with this variable. The BPF target needs the
        // option because there is no prebuilt `core` for it.
        .env("RUSTC_BOOTSTRAP", "1");
    if env::var_os("CARGO_FEATURE_MUTANTS").is_some() {
        cargo.args(["--features", "mutants"]);
    }

    match cargo.output() {
        Err(error) => fail(&format!(
            "failed to start cargo for the kernel programs: {error}"
        )),
        Ok(output) if !output.status.success() => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            fail("failed to build the kernel programs");
        }
        Ok(_) => {}
    }

    let object = target_dir.join("bpfel-unknown-none/release/gateway");
    if let Err(error) = fs::metadata(&object) {
        fail(&format!("failed to find {}: {error}", object.display()));
    }

    object
}

fn manifest_dir() -> PathBuf {
    PathBuf::from(variable("CARGO_MANIFEST_DIR"))
}

/// Returns an environment variable that cargo sets for every build script.
fn variable(name: &str) -> OsString {
    env::var_os(name).unwrap_or_else(|| fail(&format!("cargo has not set {name}")))
}

fn fail(reason: &str) -> ! {
    println!("cargo::error={reason}");
    exit(1);
}
