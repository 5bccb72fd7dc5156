//! Benchmarks of allocation and of address translation.

use cpu_time::CpuTime;
use criterion::{BatchSize, BenchmarkId, Criterion};
use ipam::{Addresses, Claim, Networks, Remap};
use ipnet::Ipv4Net;
use std::hint::black_box;
use std::net::Ipv4Addr;

/// Numbers of addresses or CIDRs that are in use when a benchmark starts.
///
/// The cost of an allocation must grow at most logarithmically with this number.
const SIZES: [u32; 3] = [100, 1_000, 10_000];

fn main() {
    let mut criterion = cpu_time::criterion();

    remap(&mut criterion);
    networks(&mut criterion);
    addresses(&mut criterion);
    criterion.final_summary();
}

fn remap(criterion: &mut Criterion<CpuTime>) {
    let remap = Remap::new(net("10.244.0.0/16"), net("10.245.0.0/16")).expect("equal sizes");

    criterion.bench_function("ipam/remap", |bencher| {
        bencher.iter(|| remap.apply(black_box(Ipv4Addr::new(10, 244, 3, 7))));
    });
}

/// Measures the allocation and the release of a remapped CIDR, for each number in [`SIZES`].
fn networks(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("ipam/networks");
    for size in SIZES {
        let mut networks = Networks::default();
        for owner in 0..size {
            networks
                .acquire(owner, Claim::Remappable(net("10.0.0.0/24")))
                .expect("10.0.0.0/8 has room for 65,536");
        }
        group.bench_function(BenchmarkId::new("acquire and release", size), |bencher| {
            bencher.iter(|| {
                let claim = Claim::Remappable(black_box(net_of(10, 24)));
                let cidr = networks.acquire(size, claim);
                networks.release(&size);
                cidr
            });
        });
    }
    group.finish();
}

/// Measures two operations on addresses.
///
/// - The allocation and the release of an address, for each number in [`SIZES`].
/// - The restoration of this number of allocations, as after a restart.
fn addresses(criterion: &mut Criterion<CpuTime>) {
    let mut group = criterion.benchmark_group("ipam/addresses");
    for size in SIZES {
        let mut addresses = Addresses::new(net("10.70.0.0/16"), 1);
        for owner in 0..size {
            addresses.acquire(owner).expect("a /16 has room");
        }
        group.bench_function(BenchmarkId::new("acquire and release", size), |bencher| {
            bencher.iter(|| {
                let address = addresses.acquire(black_box(size));
                addresses.release(&size);
                address
            });
        });
        group.bench_function(BenchmarkId::new("adopt all", size), |bencher| {
            bencher.iter_batched(
                || Addresses::new(net("10.70.0.0/16"), 1),
                |mut addresses| {
                    for owner in 0..size {
                        let address = Ipv4Addr::from_bits(0x0a46_0001 + owner);
                        addresses.adopt(owner, address).expect("a free address");
                    }
                    addresses
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn net_of(first: u8, prefix_len: u8) -> Ipv4Net {
    Ipv4Net::new(Ipv4Addr::new(first, 0, 0, 0), prefix_len).expect("a prefix length")
}

fn net(net: &str) -> Ipv4Net {
    net.parse().expect("a CIDR")
}
