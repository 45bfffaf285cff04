package cri

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// sandboxImage is the name under which a node knows the image of its pods'
// sandboxes.
const sandboxImage = "localhost/vpcroute/pause:test"

// A descriptor points at a blob of an image, as the OCI image specification
// ("Content Descriptors") has it.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// writeImage writes an OCI image layout as one tar archive: an image of a single
// layer, which holds the static program at its root and starts it.
func writeImage(path, program string) error {
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	entry := "/" + filepath.Base(program)
	layer, err := archive([]file{{name: entry[1:], mode: 0o755, data: binary}})
	if err != nil {
		return err
	}

	blobs := []file{}
	add := func(mediaType string, content []byte) descriptor {
		digest := fmt.Sprintf("%x", sha256.Sum256(content))
		blobs = append(blobs, file{name: "blobs/sha256/" + digest, mode: 0o644, data: content})
		return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(content)}
	}
	layerDesc := add("application/vnd.oci.image.layer.v1.tar", layer)
	config := add("application/vnd.oci.image.config.v1+json", encode(map[string]any{
		"architecture": runtime.GOARCH,
		"os":           "linux",
		"config":       map[string]any{"Entrypoint": []string{entry}},
		"rootfs":       map[string]any{"type": "layers", "diff_ids": []string{layerDesc.Digest}},
	}))
	manifest := add("application/vnd.oci.image.manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2,
		"config":        config,
		"layers":        []descriptor{layerDesc},
	}))
	manifest.Annotations = map[string]string{"io.containerd.image.name": sandboxImage}

	image, err := archive(append(blobs,
		file{name: "oci-layout", mode: 0o644, data: encode(map[string]any{"imageLayoutVersion": "1.0.0"})},
		file{name: "index.json", mode: 0o644, data: encode(map[string]any{
			"schemaVersion": 2,
			"manifests":     []descriptor{manifest},
		})},
	))
	if err != nil {
		return err
	}
	return os.WriteFile(path, image, 0o644)
}

type file struct {
	name string
	mode int64
	data []byte
}

func archive(files []file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// encode encodes a value of this file's own, which cannot fail.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
