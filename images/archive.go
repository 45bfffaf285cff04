package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// An archive is an OCI image layout as one tar file, with one image for several
// platforms.
type archive struct {
	name, tag string
	blobs     []file
	manifests []ocispec.Descriptor
}

// add puts the image for one platform into the archive. It has a single layer:
// a part of it never changes without the rest.
func (a *archive) add(p platform, i image, files []file) error {
	layer, err := pack(files)
	if err != nil {
		return err
	}
	zipped, err := compress(layer)
	if err != nil {
		return err
	}
	at := ocispec.Platform{OS: p.os, Architecture: p.arch}
	config := ocispec.Image{
		Platform: at,
		Config: ocispec.ImageConfig{
			User:       i.user,
			Entrypoint: []string{i.entrypoint},
			WorkingDir: "/",
			Env:        []string{"PATH=/"},
			Labels:     a.labels(i),
		},
		RootFS: ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}},
	}
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    a.blob(ocispec.MediaTypeImageConfig, encode(config)),
		Layers:    []ocispec.Descriptor{a.blob(ocispec.MediaTypeImageLayerGzip, zipped)},
	}
	descriptor := a.blob(ocispec.MediaTypeImageManifest, encode(manifest))
	descriptor.Platform = &at
	a.manifests = append(a.manifests, descriptor)
	return nil
}

func (a *archive) labels(i image) map[string]string {
	return map[string]string{
		ocispec.AnnotationTitle:       i.name,
		ocispec.AnnotationDescription: i.title,
		ocispec.AnnotationVersion:     a.tag,
		ocispec.AnnotationLicenses:    "Apache-2.0",
		ocispec.AnnotationSource:      "https://github.com/vpcroute/vpcroute",
	}
}

// blob stores content under its digest and returns what points at it.
func (a *archive) blob(mediaType string, content []byte) ocispec.Descriptor {
	d := digest.FromBytes(content)
	a.blobs = append(a.blobs, file{path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded()), 0o644, content})
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(content))}
}

// bytes returns the archive, with the names that containerd and others read.
func (a *archive) bytes() ([]byte, error) {
	all := a.blob(ocispec.MediaTypeImageIndex, encode(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: a.manifests,
	}))
	all.Annotations = map[string]string{
		"io.containerd.image.name": a.name + ":" + a.tag,
		ocispec.AnnotationRefName:  a.tag,
	}
	index := ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{all},
	}
	return pack(append(slices.Clone(a.blobs),
		file{ocispec.ImageLayoutFile, 0o644, encode(ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion})},
		file{ocispec.ImageIndexFile, 0o644, encode(index)},
	))
}

// pack makes a tar file of files and the folders they lie in. It is always the
// same for the same files: sorted, root's, and from the epoch.
func pack(files []file) ([]byte, error) {
	entries := map[string]file{}
	for _, f := range files {
		entries[f.name] = f
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			entries[dir+"/"] = file{name: dir + "/", mode: 0o755}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range sorted(entries) {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil { // it writes the archive's end
		return nil, err
	}
	return out.Bytes(), nil
}

func sorted(entries map[string]file) []file {
	var files []file
	for _, f := range entries {
		files = append(files, f)
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	return files
}

func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// encode encodes a value of the specification's types, which cannot fail.
func encode(v any) []byte {
	content, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return content
}
