//! Benchmarks of parsing and checking the objects of a fabric, by their number.

mod file;

use control_api::{Configuration, labels};
use control_fabric::{
    Changes, Fabric, Object, ObjectKey, Objects, Resolver, Tenancy, parse, plan, resolve,
};
use cpu_time::CpuTime;
use criterion::{BatchSize, BenchmarkId, Criterion};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::hint::black_box;
use std::sync::Arc;

fn main() {
    let mut criterion = cpu_time::criterion();

    for size in file::SIZES {
        parse_and_check(&mut criterion, size);
        change(&mut criterion, size);
    }
    criterion.final_summary();
}

fn parse_and_check(criterion: &mut Criterion<CpuTime>, size: file::Size) {
    let text = file::of(size);
    let mut objects: Objects = parse(&text).expect("it is well-formed");
    plan(&mut objects).expect("it is right, and has room");

    let mut group = criterion.benchmark_group("fabric");
    group.sample_size(10);
    group.bench_function(BenchmarkId::new("parse a file", size), |bencher| {
        bencher.iter(|| parse(black_box(&text)));
    });
    group.bench_function(BenchmarkId::new("plan addresses anew", size), |bencher| {
        let new = parse(&text).expect("it is well-formed");
        bencher.iter_batched(
            || new.clone(),
            |mut objects| plan(&mut objects),
            BatchSize::LargeInput,
        );
    });
    group.bench_function(BenchmarkId::new("check", size), |bencher| {
        bencher.iter(|| Fabric::try_from(black_box(&objects)));
    });
    let tenancy = Tenancy {
        liqo: "liqo".to_owned(),
        named: Vec::new(),
        labelled: tenant_namespaces(&objects),
    };
    group.bench_function(BenchmarkId::new("copy and resolve all", size), |bencher| {
        let objects: Vec<Object> = objects.iter().cloned().collect();
        bencher.iter(|| {
            let mut copy = Objects::default();
            copy.extend(black_box(&objects).iter().cloned());
            tenancy.prune(&mut copy);
            resolve(copy)
        });
    });
    group.finish();
}

/// Measures the time from a change of one object until a process has the new fabric.
fn change(criterion: &mut Criterion<CpuTime>, size: file::Size) {
    let mut objects: Objects = parse(&file::of(size)).expect("it is well-formed");
    plan(&mut objects).expect("it is right, and has room");
    let mut resolver = Resolver::new("liqo", &[]);
    let mut changes = Changes::default();
    for namespace in tenant_namespaces(&objects) {
        let name = namespace.name.clone().unwrap_or_default();
        changes.namespaces.insert(name, Some(namespace));
    }
    for object in objects.iter() {
        let object = Arc::new(object.clone());
        let key = ObjectKey::of(&object);
        changes.objects.insert(key, Some(object));
    }
    assert!(resolver.apply(changes).fabric.is_ok());

    let mut group = criterion.benchmark_group("resolve a change");
    for kind in ["Node", "IP", "Configuration", "PublicKey"] {
        let of_kind = |object: &&Object| object.kind() == kind;
        let object = objects.iter().filter(of_kind).nth(7);
        let old = object.expect("there are ten peers at least").clone();
        let new = changed(old.clone());
        let (old, new) = (Arc::new(old), Arc::new(new));
        let mut is_new = false;
        group.bench_function(BenchmarkId::new(kind, size), |bencher| {
            bencher.iter(|| {
                is_new = !is_new;
                let object = if is_new { &new } else { &old };
                let mut changes = Changes::default();
                let key = ObjectKey::of(object);
                changes.objects.insert(key, Some(object.clone()));
                // The consumer keeps the last fabric and compares it with the new one.
                let before = resolver.resolution().fabric.clone().expect("a fabric");
                let after = resolver.apply(changes).fabric.as_ref().expect("a fabric");
                assert!(!after.changes_since(&before).is_empty());
            });
        });
    }
    group.finish();
}

/// Returns the object with a change that changes the fabric.
fn changed(mut object: Object) -> Object {
    match &mut object {
        Object::Node(node) => {
            let status = node.status.as_mut().expect("it has addresses");
            let conditions = status.conditions.as_mut().expect("it is ready");
            conditions[0].status = "False".to_owned();
        }
        Object::IP(ip) => ip.spec.masquerade = Some(true),
        Object::Configuration(configuration) => {
            let status = configuration.status.as_mut().expect("it is planned");
            let remote = status.remote.as_mut().expect("it is planned");
            remote.cidr.pod[0] = "100.64.0.0/24".to_owned();
        }
        Object::PublicKey(key) => {
            let key = key.spec.public_key.as_mut().expect("it has a key");
            key.0[0] = 99;
        }
        Object::ConfigMap(_)
        | Object::EndpointSlice(_)
        | Object::Network(_)
        | Object::GatewayServer(_)
        | Object::GatewayClient(_)
        | Object::Connection(_) => unreachable!("only the kinds above are measured"),
    }

    object
}

/// Returns the tenant namespaces of the peers.
fn tenant_namespaces(objects: &Objects) -> Vec<ObjectMeta> {
    let configurations = objects.of::<Configuration>();
    let namespaces = configurations.map(|configuration| {
        let mut labels = configuration.metadata.labels.clone().unwrap_or_default();
        labels.insert(labels::TENANT_NAMESPACE.to_owned(), "true".to_owned());
        ObjectMeta {
            name: configuration.metadata.namespace.clone(),
            labels: Some(labels),
            ..ObjectMeta::default()
        }
    });

    namespaces.collect()
}
