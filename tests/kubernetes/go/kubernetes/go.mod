// Marks this folder as a module, and nothing else: the go command insists on the
// file, but reads the one that -modfile names. There is one for each minor
// version of Kubernetes: v1.35.mod, with v1.35.sum.
module liqo-lab/kubernetes

go 1.25.0
