// Marks this folder as a Go module. The go command requires the file, but reads the
// one that -modfile names instead. Each minor version of Kubernetes has such a file:
// v1.35.mod, with v1.35.sum.
module liqo-lab/kubernetes

go 1.25.0
