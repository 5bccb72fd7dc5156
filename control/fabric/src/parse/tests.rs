use super::super::fixture::{ROME, planned, rome_with};
use super::super::{Fabric, plan};
use super::*;
use proptest::prelude::*;

#[test]
fn the_objects_of_a_file_are_parsed_in_order() {
    let objects = parse(ROME).unwrap();

    let kinds: Vec<_> = objects.iter().map(Object::kind).collect();
    assert_eq!(kinds[..4], ["ConfigMap", "Node", "Node", "EndpointSlice"]);
    assert_eq!(kinds.len(), 17);
}

#[test]
fn written_objects_are_parsed_again() {
    let objects = planned(ROME);

    let again = parse(&objects.to_yaml()).unwrap();

    assert!(again.iter().eq(objects.iter()));
    assert_eq!(again.to_yaml(), objects.to_yaml());
}

#[test]
fn written_yaml_is_readable() {
    let yaml = planned(ROME).to_yaml();

    let naples = r#"---
apiVersion: networking.liqo.io/v1beta1
kind: Configuration
metadata:
  labels:
    liqo.io/remote-cluster-id: naples
  name: naples
  namespace: liqo-tenant-naples
spec:
  local:
    cidr:
      external:
      - 10.70.0.0/16
      pod:
      - 10.244.0.0/16
  remote:
    cidr:
      external:
      - 10.70.0.0/16
      pod:
      - 10.244.0.0/16
status:
  conditions:
  - lastTransitionTime: "1970-01-01T00:00:00Z"
    message: All network CIDRs are configured
    reason: NetworkCIDRsConfigured
    status: "True"
    type: NetworkCIDRsConfigured
  remote:
    cidr:
      external:
      - 10.4.0.0/16
      pod:
      - 10.3.0.0/16
---
"#;
    assert!(yaml.contains(naples), "{yaml}");
}

#[test]
fn an_empty_file_is_an_error() {
    for text in [
        "",
        "\n",
        "# nothing\n",
        "---\n---\n",
        "---\nnull\n",
        "%YAML 1.2\n---\n",
    ] {
        assert_eq!(
            refused(text),
            ["the file contains no objects; add the objects of the fabric, or use another file"],
            "{text:?}"
        );
    }
}

#[test]
fn all_document_markers_of_yaml_are_accepted() {
    let network = |name| {
        format!(
            "apiVersion: ipam.liqo.io/v1alpha1\nkind: Network\nmetadata: {{name: {name}}}\nspec: {{cidr: 10.0.0.0/16}}\n"
        )
    };
    let text = format!(
        "\u{feff}%YAML 1.2\n--- # first\n{}...\n# between\n---\n{}---   \n\n---\n{}",
        network("a"),
        network("b"),
        network("c")
    );

    let objects = parse(&text).unwrap();

    let names: Vec<_> = objects.iter().map(Object::label).collect();
    assert_eq!(names, ["Network a", "Network b", "Network c"]);
    let lines: Vec<_> = objects
        .documents
        .iter()
        .filter_map(|document| document.position)
        .map(|position| (position.document, position.line))
        .collect();
    assert_eq!(lines, [(1, 3), (2, 10), (3, 17)]);
}

#[test]
fn objects_as_kubectl_prints_them_are_accepted() {
    let text = "
apiVersion: networking.liqo.io/v1beta1
kind: PublicKey
metadata:
  creationTimestamp: '2026-11-21T08:15:23Z'
  deletionTimestamp: null
  generation: 1
  labels:
    liqo.io/remote-cluster-id: milan
  name: milan
  namespace: liqo-tenant-milan
  managedFields:
  - apiVersion: networking.liqo.io/v1beta1
    fieldsType: FieldsV1
    fieldsV1: {'f:spec': {'f:publicKey': {}}}
    manager: liqoctl
    operation: Update
  ownerReferences:
  - apiVersion: networking.liqo.io/v1beta1
    kind: GatewayClient
    name: milan
    uid: 82003ad5-3325-4360-9a24-faa01fec5ba8
  resourceVersion: '22339'
  uid: 16e4d4f0-10e8-4f74-913d-1adf0addace6
spec:
  publicKey: Mff4yxtyO/xaHJRQ0eQEpEJcPfFMwGq5/KoSHOaZI2g=
---
apiVersion: networking.liqo.io/v1beta1
kind: Connection
metadata: {name: gw-milan}
spec:
  gatewayRef: {kind: WgGatewayClient, name: milan}
  type: Client
status:
  latency: {timestamp: '2026-11-21T08:17:35Z', value: 806μs}
  value: Connected
---
apiVersion: v1
kind: Node
metadata: {name: a}
status:
  capacity: {cpu: '4'}
  somethingNew: {of: a later release}
";

    let objects = parse(text).unwrap();

    assert_eq!(objects.iter().count(), 3);
}

#[test]
fn the_error_of_an_unknown_field_lists_the_known_fields() {
    let errors = refused(&rome_with("  mtu: 1280", "  MTU: 1280"));

    assert_eq!(
        errors,
        [
            "document 11 (line 119), GatewayClient liqo-tenant-naples/to-naples, spec.MTU: unknown field; \
             remove it or use one of clientTemplateRef, endpoint, mtu, secretRef"
        ]
    );
}

#[test]
fn unknown_fields_are_refused_except_inside_of_kubernetes_kinds() {
    for (from, to, field) in [
        ("spec:\n  podCIDRs", "sepc: {}\nspec:\n  podCIDRs", "sepc"),
        (
            "  name: rome-2\n",
            "  name: rome-2\n  label: {}\n",
            "metadata.label",
        ),
        (
            "  preAllocated: 1",
            "  preallocated: 1",
            "spec.preallocated",
        ),
        (
            "data:\n  CLUSTER",
            "content: {}\ndata:\n  CLUSTER",
            "content",
        ),
        (
            "      external: [10.70",
            "      extrenal: [10.70",
            "spec.remote.cidr.extrenal",
        ),
    ] {
        let errors = refused(&rome_with(from, to));

        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(
            errors[0].contains(&format!(", {field}: unknown field")),
            "{errors:?}"
        );
    }
    let nested = rome_with(
        "  podCIDRs: [",
        "  newInLaterRelease: {a: 1}\n  podCIDRs: [",
    );
    assert!(parse(&nested).is_ok());
}

#[test]
fn the_error_of_an_unknown_kind_lists_the_known_kinds() {
    let text = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Network\nmetadata: {name: b}\n";

    let errors = refused(text);

    assert!(
        errors[0].starts_with(
            "document 1 (line 1), Pod a, kind: unknown kind `Pod` of apiVersion `v1`; remove it or use one of ConfigMap (v1), "
        ),
        "{errors:?}"
    );
    assert!(errors[0].ends_with("Connection (networking.liqo.io/v1beta1)"));
    assert!(errors[1].contains("unknown kind `Network` of apiVersion `v1`"));
}

#[test]
fn errors_of_types_and_values_name_the_allowed_ones() {
    for (from, to, error) in [
        (
            "  mtu: 1280",
            "  mtu: big",
            "spec.mtu: is a string but must be an integer; correct the value",
        ),
        (
            "protocol: UDP",
            "protocol: SCTP",
            "spec.endpoint.protocol: `SCTP` is none of TCP, UDP; use one of them",
        ),
        (
            "pod: [10.244.0.0/16]",
            "pod: 10.244.0.0/16",
            "spec.remote.cidr.pod: is a string but must be a list; correct the value",
        ),
        (
            "preAllocated: 1",
            "preAllocated: -1",
            "spec.preAllocated: -1 is below 0; correct the value",
        ),
        (
            "  masquerade: true",
            "  masquerade: \"true\"",
            "spec.masquerade: is a string but must be true or false; correct the value",
        ),
        ("  ip: 192.0.2.9\n", "", "spec.ip: is missing; add it"),
        (
            "ipam.liqo.io/network-type: reserved",
            "ipam.liqo.io/network-type: 7",
            "metadata.labels.ipam.liqo.io/network-type: is a number but must be a string; quote it",
        ),
        (
            "  CLUSTER_ID: rome",
            "  CLUSTER_ID: 7",
            "data.CLUSTER_ID: is a number but must be a string; quote it",
        ),
        ("  name: web\n", "", "metadata.name: is missing; add it"),
    ] {
        let errors = refused(&rome_with(from, to));

        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].ends_with(error), "{errors:?}");
    }
}

#[test]
fn a_key_that_is_not_base64_is_refused_at_its_field() {
    let errors = refused(&rome_with("Mff4yxtyO/xaHJRQ", "not base64!!"));

    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("PublicKey liqo-tenant-naples/naples, spec.publicKey: cannot be read: ")
    );
}

#[test]
fn a_document_that_is_not_yaml_does_not_hide_the_others() {
    let text = rome_with("  CLUSTER_ID: rome", "  CLUSTER_ID: [rome");
    let text = text.replace("  mtu: 1280", "  MTU: 1280");

    let errors = parse(&text).unwrap_err();

    let documents: Vec<_> = errors
        .iter()
        .map(|error| error.place.position.unwrap())
        .collect();
    assert_eq!(documents[0].document, 1);
    assert_eq!(documents[0].line, 2);
    assert!(matches!(
        errors.iter().next().unwrap().problem,
        Problem::Syntax { .. }
    ));
    assert_eq!(documents[1].document, 11);
}

#[test]
fn a_syntax_error_names_the_line_of_the_file() {
    let text = rome_with("  mtu: 1280", "  mtu: [1280");
    let errors = refused(&text);
    let line = text
        .lines()
        .position(|line| line.contains("[1280"))
        .unwrap()
        + 1;

    assert!(
        (line..=line + 2).any(|line| errors[0].contains(&format!("line {line}"))),
        "{line}: {errors:?}"
    );
}

#[test]
fn a_document_must_be_an_object() {
    let errors = refused("- a\n---\ntext\n---\nkind: Node\nmetadata: {name: a}\n");

    assert_eq!(
        errors,
        [
            "document 1 (line 1): not a mapping of fields to values; start it with apiVersion, kind and metadata",
            "document 2 (line 3): not a mapping of fields to values; start it with apiVersion, kind and metadata",
            "document 3 (line 5), Node a, apiVersion: is missing; add it",
        ]
    );
}

#[test]
fn the_same_object_twice_is_refused() {
    let network = "apiVersion: ipam.liqo.io/v1alpha1\nkind: Network\nmetadata: {name: a, namespace: b}\nspec: {cidr: 10.0.0.0/16}\n";
    let errors = refused(&format!("{network}---\n{network}"));

    assert_eq!(
        errors,
        [
            "document 2 (line 6), Network b/a: the same object is in document 1 (line 1), Network b/a; \
             remove one, or rename it"
        ]
    );
}

#[test]
fn all_errors_are_reported_together() {
    let text = rome_with("  mtu: 1280", "  MTU: 1280\n  a: b");
    let text = text.replace("  masquerade: true", "  masquerade: 7");

    assert_eq!(refused(&text).len(), 3);
}

proptest! {
    /// Lines are deleted, duplicated and moved. The result is refused or planned without a panic, and a
    /// planned file stays planned.
    #[test]
    fn a_damaged_file_is_refused_or_planned(
        damages in prop::collection::vec((0..3u8, any::<prop::sample::Index>()), 1..4)
    ) {
        let mut lines: Vec<_> = ROME.lines().collect();
        for (damage, index) in damages {
            let index = index.index(lines.len());
            match damage {
                0 => {
                    lines.remove(index);
                }
                1 => lines.insert(index, lines[index]),
                _ => lines.swap(index, 0),
            }
        }

        let Ok(mut objects) = parse(&lines.join("\n")) else {
            return Ok(());
        };
        if plan(&mut objects).is_ok() {
            let again = parse(&objects.to_yaml()).unwrap();
            prop_assert!(Fabric::try_from(&again).is_ok());
        }
    }

    #[test]
    fn any_text_is_refused_or_parsed(text: String) {
        parse(&text).ok();
    }
}

fn refused(text: &str) -> Vec<String> {
    let errors = parse(text).unwrap_err();
    errors.to_string().lines().map(str::to_owned).collect()
}
