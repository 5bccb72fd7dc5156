//! The image of the shop, which contains all its services, and Redis.

use crate::image::Tree;
use crate::image::programs::System;
use anyhow::Result;
use std::path::Path;

/// The server of Redis, in Debian's package of tools. The program is the server if its name is
/// `redis-server`. Debian's package of that name contains only a symlink, and starts a service
/// when it is installed.
const REDIS: &str = "redis-check-rdb";

/// Returns the tree of all files in the image.
pub(super) fn tree(guest: &Path) -> Result<Tree> {
    let mut tree = Tree::merged_usr();
    tree.file("/usr/bin/shop", &guest.join("shop"))?;
    System::machine().add(&mut tree, REDIS, "redis-tools")?;
    tree.symlink("/usr/bin/redis-server", REDIS)?;

    Ok(tree)
}
