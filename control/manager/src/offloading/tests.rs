use crate::golden::without_identity;
use control_api::{Quota, ResourceSlice, VirtualNode};
use serde_json::Value;
use side::{MOMENT, Side, key};

mod consumer;
mod golden;
mod hostile;
mod kubelet;
mod names;
mod provider;
mod recorded;
mod side;

/// A change of an object, with a description.
type Edit = (&'static str, fn(&mut Value));

#[test]
fn the_quota_equals_upstreams() {
    let mut milan = Side::new(1);
    milan.put_peer("rome");
    milan.put::<ResourceSlice>(golden::replicated());
    milan.run(MOMENT);

    let slice = milan
        .object::<ResourceSlice>(&key("rome", "milan"))
        .unwrap();
    let quota = milan
        .object::<Quota>(&key("rome", "milan-a8a4c692b93b"))
        .unwrap();
    assert_eq!(
        quota["metadata"]["ownerReferences"][0]["uid"],
        slice["metadata"]["uid"]
    );
    assert_eq!(without_identity(quota), golden::quota());
}

/// Exceptions: `status` (the virtual kubelet does not exist yet), the finalizer (there is nothing to clean up), and
/// `spec.template` and `spec.offloadingPatch.annotationsNotReflected` (both from the VkOptionsTemplate, of which
/// `golden` has none).
#[test]
fn the_virtual_node_equals_upstreams() {
    let mut rome = Side::new(1);
    rome.put_peer("milan");
    rome.put_identity("milan", "milan", true);
    rome.put::<ResourceSlice>(golden::local());
    rome.run(MOMENT);

    let slice = rome
        .object::<ResourceSlice>(&key("milan", "milan"))
        .unwrap();
    let mut node = rome.object::<VirtualNode>(&key("milan", "milan")).unwrap();
    assert_eq!(
        node["metadata"]["ownerReferences"][0]["uid"],
        slice["metadata"]["uid"]
    );
    node.as_object_mut().unwrap().remove("status");
    assert_eq!(without_identity(node), golden::virtual_node());
}
