// What needs containerd's API, and so gRPC, is a module of its own: the agent's own module knows nothing
// of it, and neither its build nor its tests compile it. Decision 9 has the figures.
module weir/agent/cmd/weir-containerd

go 1.26.0

require (
	github.com/containerd/containerd/api v1.12.0
	github.com/containerd/nri v0.12.3
	github.com/google/go-cmp v0.7.0
	google.golang.org/grpc v1.83.2
	google.golang.org/protobuf v1.36.12
	weir v0.0.0
)

require (
	github.com/containerd/log v0.2.0 // indirect
	github.com/containerd/ttrpc v1.2.9 // indirect
	github.com/containerd/typeurl/v2 v2.3.0 // indirect
	github.com/knqyf263/go-plugin v0.9.0 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	github.com/opencontainers/runtime-spec v1.3.0 // indirect
	github.com/sirupsen/logrus v1.10.2 // indirect
	github.com/tetratelabs/wazero v1.11.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.42.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260825221802-da73d73af1c5 // indirect
)

replace weir => ../../..
