//! Measures ChaCha20-Poly1305 through ring's interface, with each implementation.

use crate::cipher::{Choice, select};
use cpu_time::CpuTime;
use criterion::measurement::Measurement;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::hint::black_box;

/// Lengths in bytes: a small packet, lengths around that from which on the library is used, and
/// packets of path MTUs of 1,400, 1,500 and 9,000 bytes.
const LENGTHS: [usize; 6] = [96, 256, 512, 1_340, 1_424, 8_928];

const TAG: usize = 16;

/// Afterwards, the implementation that a gateway uses by default is selected.
pub(crate) fn all(criterion: &mut Criterion<CpuTime>) {
    let key = UnboundKey::new(&CHACHA20_POLY1305, &[0x6c; 32]).expect("the key has 32 bytes");
    let key = LessSafeKey::new(key);

    let mut group = criterion.benchmark_group("cipher");
    for length in LENGTHS {
        group.throughput(Throughput::Bytes(length as u64));
        for choice in [Choice::Ring, Choice::Auto] {
            let name = select(choice).name();
            encrypt(&mut group, name, &key, length);
            decrypt(&mut group, name, &key, length);
        }
    }
    group.finish();
}

fn encrypt(
    group: &mut BenchmarkGroup<'_, impl Measurement>,
    name: &str,
    key: &LessSafeKey,
    length: usize,
) {
    let mut buffer = vec![0; length];

    let id = BenchmarkId::new(format!("encrypt, {name}"), length);
    group.bench_function(id, |bencher| {
        bencher
            .iter(|| key.seal_in_place_separate_tag(nonce(), Aad::empty(), black_box(&mut buffer)));
    });
}

/// Includes a copy of the message, because boringtun also decrypts a copy.
fn decrypt(
    group: &mut BenchmarkGroup<'_, impl Measurement>,
    name: &str,
    key: &LessSafeKey,
    length: usize,
) {
    let mut sealed = vec![0; length];
    key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
        .expect("the message is shorter than 256 GiB");
    let mut buffer = vec![0; length + TAG];

    let id = BenchmarkId::new(format!("decrypt, {name}"), length);
    group.bench_function(id, |bencher| {
        bencher.iter(|| {
            buffer.copy_from_slice(&sealed);
            let opened = key.open_in_place(nonce(), Aad::empty(), black_box(&mut buffer));
            opened.expect("the tag is valid").len()
        });
    });
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0x71; 12])
}
