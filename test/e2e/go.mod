module github.com/kerf-gpu/kerf/test/e2e

go 1.26.6

require (
	github.com/kerf-gpu/kerf v0.0.0
	github.com/opencontainers/runtime-spec v1.3.0
	k8s.io/api v0.37.1
	k8s.io/apimachinery v0.37.1
	k8s.io/client-go v0.37.1
	tags.cncf.io/container-device-interface v1.1.1
)

require (
	github.com/fsnotify/fsnotify v1.10.1 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.49.0 // indirect
	tags.cncf.io/container-device-interface/specs-go v1.1.1 // indirect
)

replace github.com/kerf-gpu/kerf => ../..
