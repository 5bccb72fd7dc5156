//! Tests that read archives by the `tar` crate.

use super::scratch::Scratch;
use super::*;
use flate2::read::GzDecoder;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::fs;
use std::io::Read;
use tar::EntryType;

#[test]
fn archives_of_the_same_files_are_equal() {
    let (here, there) = (Scratch::new(), Scratch::new());

    let first = written(&here, NAME, &[image(&here, Platform::Amd64)]);
    let second = written(&there, NAME, &[image(&there, Platform::Amd64)]);

    assert!(
        first == second,
        "{} and {} bytes",
        first.len(),
        second.len()
    );
}

#[test]
fn descriptors_have_digest_and_size_of_their_blobs() {
    let archive = of_both_platforms();

    let mut seen = 0;
    let mut waiting = vec![archive.index()];
    while let Some(document) = waiting.pop() {
        for descriptor in descriptors(&document) {
            let blob = archive.blob(descriptor);
            seen += 1;
            assert_eq!(descriptor["size"], blob.len());
            let sum: String = Sha256::digest(blob)
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            assert_eq!(descriptor["digest"], format!("sha256:{sum}"));
            waiting.extend(serde_json::from_slice::<Value>(blob).ok());
        }
    }
    // The archive has an index, and for each platform a manifest, a configuration and a layer.
    assert_eq!(seen, 1 + 2 * 3);
}

#[test]
fn a_layer_of_two_images_is_stored_once() {
    let archive = of_both_platforms();

    let [index, manifests, configurations, layers] = [1, 2, 2, 1];
    let blobs = index + manifests + configurations + layers;
    assert_eq!(archive.0.len(), blobs + ["index.json", "oci-layout"].len());
}

#[test]
fn an_image_has_all_its_names() {
    let folder = Scratch::new();
    let names = ["docker.io/library/busybox:1.36", "localhost/tools:latest"];

    let archive = written(&folder, &names, &[image(&folder, Platform::Amd64)]);

    let index = Parsed::of(&archive).index();
    let described = descriptors(&index);
    assert_eq!(described[0]["digest"], described[1]["digest"]);
    for (descriptor, name) in described.iter().zip(names) {
        let annotations = &descriptor["annotations"];
        assert_eq!(annotations["io.containerd.image.name"], name);
        assert_eq!(annotations["org.opencontainers.image.ref.name"], name);
        assert_eq!(descriptor["platform"]["architecture"], "amd64");
        assert_eq!(descriptor["platform"]["os"], "linux");
    }
}

#[test]
fn images_of_several_platforms_share_a_name() {
    let archive = of_both_platforms();

    let top = archive.index();
    let [index] = &descriptors(&top)[..] else {
        panic!("{top}");
    };
    let architectures: Vec<_> = descriptors(&archive.document(index))
        .iter()
        .map(|it| it["platform"]["architecture"].clone())
        .collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
}

#[test]
fn the_configuration_has_entrypoint_and_labels() {
    let folder = Scratch::new();

    let archive = written(&folder, NAME, &[image(&folder, Platform::Arm64)]);

    let archive = Parsed::of(&archive);
    let manifest = archive.only_manifest();
    let config = archive.document(&manifest["config"]);
    assert_eq!(config["created"], "1970-01-01T00:00:00Z");
    assert_eq!(config["architecture"], "arm64");
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/tool");
    assert_eq!(config["config"]["Labels"]["title"], "a");
    assert_eq!(manifest["annotations"]["title"], "a");
    assert_eq!(
        config["rootfs"]["diff_ids"][0], manifest["layers"][0]["digest"],
        "the digest of an uncompressed layer is that of its content"
    );
}

#[test]
fn a_compressed_layer_has_the_same_files() {
    let folder = Scratch::new();
    let plain = image(&folder, Platform::Amd64);
    let mut packed = plain.clone();
    packed.compression = Compression::Gzip;

    let [plain, packed] = [plain, packed].map(|it| Parsed::of(&written(&folder, NAME, &[it])));

    let manifest = packed.only_manifest();
    let layer = &manifest["layers"][0];
    let config = packed.document(&manifest["config"]);
    assert_eq!(
        layer["mediaType"],
        "application/vnd.oci.image.layer.v1.tar+gzip"
    );
    let mut unpacked = Vec::new();
    GzDecoder::new(packed.blob(layer))
        .read_to_end(&mut unpacked)
        .unwrap();
    let manifest = plain.only_manifest();
    let layer = &manifest["layers"][0];
    assert!(unpacked == plain.blob(layer));
    assert_eq!(config["rootfs"]["diff_ids"][0], layer["digest"]);
}

#[test]
fn a_layer_has_links_and_modes_but_no_data_of_the_machine() {
    let folder = Scratch::new();

    let archive = written(&folder, NAME, &[image(&folder, Platform::Amd64)]);

    assert_eq!(
        shown_layer(&Parsed::of(&archive)),
        [
            "bin -> usr/bin",
            "etc/ 755",
            "etc/plain 644 plain",
            "lib -> usr/lib",
            "lib64 -> usr/lib64",
            "sbin -> usr/sbin",
            "tmp/ 1777",
            "usr/ 755",
            "usr/bin/ 755",
            "usr/bin/tool 755 program",
            "usr/lib/ 755",
            "usr/lib64/ 755",
            "usr/sbin/ 755",
        ]
    );
}

#[test]
fn paths_longer_than_a_header_survive() {
    let folder = Scratch::new();
    let name = "long".repeat(40);
    let mut tree = Tree::new();
    tree.bytes(&format!("/{name}"), "found").unwrap();
    tree.symlink("/link", &name).unwrap();

    let archive = written(&folder, NAME, &[Image::new(Platform::Amd64, tree, &[])]);

    assert_eq!(
        shown_layer(&Parsed::of(&archive)),
        [format!("link -> {name}"), format!("{name} 644 found")]
    );
}

#[test]
fn names_that_are_not_fully_qualified_are_refused() {
    let folder = Scratch::new();
    let image = |platform| image(&folder, platform);

    for name in ["tools", "tools:latest", "localhost/tools", "localhost/:1"] {
        let error = check(&[name.to_owned()], &[image(Platform::Amd64)]).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
    let twice = [Platform::Arm64, Platform::Arm64].map(image);
    let error = check(&NAME.map(str::to_owned), &twice).unwrap_err();

    assert_eq!(error.to_string(), "two images for arm64 under one name");
}

#[test]
fn a_failed_archive_keeps_the_previous_file() {
    let folder = Scratch::new();
    let to = folder.file("image.tar", "the one before", 0o644);
    let source = folder.file("source", "", 0o644);
    let mut tree = Tree::new();
    tree.file("/gone", &source).unwrap();
    fs::remove_file(&source).unwrap();

    let image = Image::new(Platform::Amd64, tree, &[]);
    let error = write(&to, &NAME.map(str::to_owned), &[image]).unwrap_err();

    assert!(format!("{error:#}").contains("failed to add /gone"));
    assert_eq!(fs::read(&to).unwrap(), b"the one before");
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1);
}

const NAME: &[&str; 1] = &["localhost/a:1"];

/// Returns an image with files whose permissions on disk differ from those in images.
fn image(folder: &Scratch, platform: Platform) -> Image {
    let program = folder.file("program", "program", 0o700);
    let plain = folder.file("plain", "plain", 0o600);
    let mut tree = Tree::merged_usr();
    tree.file("/bin/tool", &program).unwrap();
    tree.file("/etc/plain", &plain).unwrap();

    let mut image = Image::new(platform, tree, &["/usr/bin/tool"]);
    image.labels.insert("title".to_owned(), "a".to_owned());
    image
}

fn written(folder: &Scratch, names: &[&str], images: &[Image]) -> Vec<u8> {
    let to = folder.join("image.tar");
    let names: Vec<_> = names.iter().copied().map(str::to_owned).collect();
    write(&to, &names, images).unwrap();

    fs::read(to).unwrap()
}

fn of_both_platforms() -> Parsed {
    let folder = Scratch::new();
    let images = [Platform::Amd64, Platform::Arm64].map(|it| image(&folder, it));

    Parsed::of(&written(&folder, NAME, &images))
}

/// The content of each file in an archive, by path.
struct Parsed(BTreeMap<String, Vec<u8>>);

impl Parsed {
    fn of(archive: &[u8]) -> Self {
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            assert!(files.insert(path, content).is_none());
        }

        Self(files)
    }

    fn index(&self) -> Value {
        serde_json::from_slice(&self.0["index.json"]).unwrap()
    }

    fn only_manifest(&self) -> Value {
        self.document(descriptors(&self.index())[0])
    }

    fn document(&self, descriptor: &Value) -> Value {
        serde_json::from_slice(self.blob(descriptor)).unwrap()
    }

    fn blob(&self, descriptor: &Value) -> &[u8] {
        let digest = descriptor["digest"].as_str().unwrap();

        &self.0[&format!("blobs/{}", digest.replace(':', "/"))]
    }
}

/// Returns all references of a document to blobs.
fn descriptors(document: &Value) -> Vec<&Value> {
    let lists = ["manifests", "layers"].map(|list| document[list].as_array());
    let config = document
        .get("config")
        .filter(|it| it.get("digest").is_some());

    lists
        .into_iter()
        .flatten()
        .flatten()
        .chain(config)
        .collect()
}

/// Returns the entries of the only layer of an archive, as lines of text.
fn shown_layer(archive: &Parsed) -> Vec<String> {
    let layer = archive.blob(&archive.only_manifest()["layers"][0]);

    tar::Archive::new(layer)
        .entries()
        .unwrap()
        .map(|entry| show(entry.unwrap()))
        .collect()
}

fn show(mut entry: tar::Entry<'_, &[u8]>) -> String {
    let header = entry.header();
    assert_eq!(header.mtime().unwrap(), 0);
    assert_eq!(header.uid().unwrap() + header.gid().unwrap(), 0);
    let (mode, kind) = (header.mode().unwrap(), header.entry_type());
    let path = entry.path().unwrap().display().to_string();
    if kind == EntryType::Directory {
        return format!("{path} {mode:o}");
    }
    if kind == EntryType::Symlink {
        let target = entry.link_name().unwrap().unwrap();
        return format!("{path} -> {}", target.display());
    }

    let mut content = String::new();
    entry.read_to_string(&mut content).unwrap();
    format!("{path} {mode:o} {content}")
}
