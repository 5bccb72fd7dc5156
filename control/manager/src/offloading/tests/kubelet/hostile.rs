//! Options with invalid, absurd and surplus values.

use super::*;

#[test]
fn invalid_options_are_left_out_and_named() {
    let long = "x".repeat(5000);
    let many: serde_json::Map<_, _> = (100..1100)
        .map(|number| (format!("key-{number}"), json!("v")))
        .collect();
    let resource =
        |group: &str, name: &str| json!({"group": group, "version": "v1", "resource": name});
    let workers = json!({"pod": {"workers": -5}, "other": {"workers": 1}});
    let edits = [
        ("containerImage", json!("a b"), "a b"),
        ("replicas", json!(-1), "\"replicas\":-1"),
        ("replicas", json!(1_000_000), "1000000"),
        ("pullPolicy", json!("Sometimes"), "Sometimes"),
        ("metricsAddress", json!(":0"), "=:0"),
        ("metricsAddress", json!(long), long.as_str()),
        ("extraArgs", json!([format!("--{long}")]), &long),
        ("extraArgs", json!(["sh"]), "\"sh\""),
        ("extraArgs", json!(["--vk-lease-duration=15s"]), "vk-lease"),
        ("extraLabels", json!({"a b": "c"}), "a b"),
        ("extraLabels", Value::Object(many), "key-999"),
        ("extraAnnotations", json!({"a": long}), &long),
        ("nodeExtraLabels", json!({"a": "b,c=d"}), "c=d"),
        ("nodeExtraAnnotations", json!({"a": "b,c=d"}), "c=d"),
        ("imagePullSecrets", json!([{"name": "../x"}]), "../x"),
        ("tolerations", json!([{"key": "a b"}]), "a b"),
        ("reflectorsConfig", workers, "=-5"),
        (
            "reflectedResources",
            json!([resource("", "secrets")]),
            "--reflected-resource",
        ),
        (
            "reflectedResources",
            json!([resource("apps", "deployments")]),
            "--reflected-resource",
        ),
        (
            "reflectedResources",
            json!([resource("example.com", "a b")]),
            "--reflected-resource",
        ),
        (
            "reflectedResources",
            json!([resource("example.com", "widgets"), {"group": "example.com", "version": "v9", "resource": "widgets"}]),
            ".v9.",
        ),
    ];
    for (field, value, part) in edits {
        let mut rome = rome(1);
        rome.edit::<VkOptionsTemplate>(&default_options(), |it| it["spec"][field] = value);
        rome.run(MOMENT);

        let deployment = rome.object::<Deployment>(&vk()).unwrap().to_string();
        assert!(!deployment.contains(part), "{field}: {deployment}");
        assert!(deployment.len() < 20_000, "{field}: {}", deployment.len());
        let events = rome.events();
        let expected = format!(
            "VirtualNode milan InvalidOptions: left out of the VkOptionsTemplate: {field}["
        );
        assert_eq!(events.len(), 1, "{field}: {events:?}");
        assert!(events[0].starts_with(&expected), "{field}: {events:?}");
        assert!(rome.replanned().is_empty(), "{field}");
    }
}

#[test]
fn a_missing_vk_options_template_is_named_and_changes_nothing() {
    let mut rome = rome(1);
    let before = rome.object::<Deployment>(&vk());
    rome.edit::<VirtualNode>(&milan(), |node| {
        node["spec"]["vkOptionsTemplateRef"] = json!({"name": "missing"});
    });
    rome.run(MOMENT);

    let events = rome.events();
    let expected =
        "VkOptionsTemplateMissing: spec.vkOptionsTemplateRef: VkOptionsTemplate liqo/missing";
    assert!(events[0].contains(expected), "{events:?}");
    assert_eq!(rome.object::<Deployment>(&vk()), before);
}
