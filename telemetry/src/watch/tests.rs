use super::*;
use std::fs;

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_write_and_a_rename_over_the_file_are_both_reported() {
    let (directory, path, mut watch) = watched();

    fs::write(&path, "two").unwrap();
    let written = tokio::time::timeout(DEADLINE, watch.changed()).await;
    fs::write(directory.0.join("new"), "three").unwrap();
    fs::rename(directory.0.join("new"), &path).unwrap();
    let renamed = tokio::time::timeout(DEADLINE, watch.changed()).await;

    assert!(written.is_ok() && renamed.is_ok());
    assert_eq!(fs::read_to_string(watch.path()).unwrap(), "three");
}

#[tokio::test]
async fn repeatedly_dropped_waits_lose_no_change() {
    let (_directory, path, mut watch) = watched();

    fs::write(&path, "two").unwrap();
    let waits = async {
        while tokio::time::timeout(QUIET / 10, watch.changed())
            .await
            .is_err()
        {}
    };
    let reported = tokio::time::timeout(DEADLINE, waits).await;

    assert!(reported.is_ok());
}

#[tokio::test]
async fn reading_the_file_is_no_change() {
    let (_directory, path, mut watch) = watched();

    fs::read_to_string(&path).unwrap();
    let reported = tokio::time::timeout(QUIET * 4, watch.changed()).await;

    assert!(reported.is_err());
}

#[test]
fn a_missing_directory_is_an_error_that_names_the_file() {
    let Err(error) = FileWatch::new(Path::new("/nonexistent/fabric.yaml")) else {
        panic!("watched a directory that does not exist");
    };

    assert!(error.to_string().contains("/nonexistent/fabric.yaml"));
}

#[tokio::test]
async fn a_change_of_another_file_in_the_directory_is_ignored() {
    let (directory, _, mut watch) = watched();

    fs::write(directory.0.join("fabric.yaml.swp"), "two").unwrap();
    fs::remove_file(directory.0.join("fabric.yaml.swp")).unwrap();
    let reported = tokio::time::timeout(QUIET * 4, watch.changed()).await;

    assert!(reported.is_err());
}

#[tokio::test]
async fn a_changed_config_map_is_reported() {
    let directory = Directory::new();
    let link = |target: &str| {
        fs::create_dir(directory.0.join(target)).unwrap();
        fs::write(directory.0.join(target).join("fabric.yaml"), target).unwrap();
        std::os::unix::fs::symlink(target, directory.0.join("..data_tmp")).unwrap();
        fs::rename(directory.0.join("..data_tmp"), directory.0.join("..data")).unwrap();
    };
    link("..one");
    let path = directory.0.join("fabric.yaml");
    std::os::unix::fs::symlink("..data/fabric.yaml", &path).unwrap();
    let mut watch = FileWatch::new(&path).unwrap();

    link("..two");
    let reported = tokio::time::timeout(DEADLINE, watch.changed()).await;

    assert!(reported.is_ok());
    assert_eq!(fs::read_to_string(&path).unwrap(), "..two");
}

#[tokio::test]
async fn a_replaced_directory_is_watched_again() {
    let directory = Directory::new();
    let [here, old] = ["here", "old"].map(|it| directory.0.join(it));
    fs::create_dir(&here).unwrap();
    let path = here.join("fabric.yaml");
    fs::write(&path, "one").unwrap();
    let mut watch = FileWatch::new(&path).unwrap();

    fs::rename(&here, &old).unwrap();
    let gone = tokio::time::timeout(QUIET * 4, watch.changed()).await;
    fs::create_dir(&here).unwrap();
    fs::write(&path, "two").unwrap();
    let replaced = tokio::time::timeout(DEADLINE, watch.changed()).await;
    fs::write(old.join("fabric.yaml"), "one again").unwrap();
    let moved = tokio::time::timeout(QUIET * 4, watch.changed()).await;
    fs::remove_dir_all(&here).unwrap();
    let removed = tokio::time::timeout(DEADLINE, watch.changed()).await;
    fs::create_dir(&here).unwrap();
    fs::write(&path, "three").unwrap();
    let made = tokio::time::timeout(DEADLINE, watch.changed()).await;
    fs::write(&path, "four").unwrap();
    let written = tokio::time::timeout(DEADLINE, watch.changed()).await;

    assert!(gone.is_ok() && replaced.is_ok() && moved.is_err());
    assert!(removed.is_ok() && made.is_ok() && written.is_ok());
}

#[tokio::test]
async fn a_file_that_changes_without_a_pause_is_reported() {
    let directory = Directory::new();
    let path = directory.0.join("fabric.yaml");
    let mut watch = FileWatch::new(&path).unwrap();

    let mut interval = tokio::time::interval(QUIET / 10);
    let writer = async {
        for _ in 0.. {
            interval.tick().await;
            fs::write(&path, "more").unwrap();
        }
    };
    let reported = tokio::select! {
        reported = tokio::time::timeout(DEADLINE, watch.changed()) => reported,
        () = writer => panic!("the writer ended"),
    };

    assert!(reported.is_ok());
}

#[test]
fn changes_are_reported_after_a_pause_or_a_second() {
    let start = Instant::now();

    let mut pending = Debounce::extend(None, start);
    assert_eq!(pending.ends_at, start + QUIET);
    for n in 1..=100 {
        pending = Debounce::extend(Some(pending), start + n * QUIET / 2);
    }

    assert_eq!(pending.ends_at, start + DEBOUNCE_MAX);
}

#[test]
fn a_lost_event_counts_as_a_change() {
    let (sender, mut changes) = mpsc::channel(1);
    let filter = Filter {
        directory: "/etc/liqo".into(),
        name: "fabric.yaml".into(),
        is_gone: Arc::default(),
        sender,
    };
    let overflow = Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan);

    for event in [Ok(overflow), Err(notify::Error::generic("lost"))] {
        filter.handle(&event);
        assert_eq!(changes.try_recv(), Ok(()));
    }
    filter.handle(&Ok(Event::new(EventKind::Other)));
    assert!(changes.try_recv().is_err());
}

/// Creates a directory with a file, and a watch on the file.
fn watched() -> (Directory, PathBuf, FileWatch) {
    let directory = Directory::new();
    let path = directory.0.join("fabric.yaml");
    fs::write(&path, "one").unwrap();
    let watch = FileWatch::new(&path).unwrap();

    (directory, path, watch)
}

struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let name = format!(
            "liqo-watch-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
