use super::*;
#[test]
fn dump() {
    for crd in custom_resource_definitions() {
        println!("{}", serde_saphyr::to_string(&crd).unwrap());
    }
}
