package fakecri

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type image struct {
	seq     int
	id      string // "sha256:…" of the configuration
	tags    map[string]bool
	digests map[string]bool // repo@sha256:…
	size    uint64
	user    string
	pinned  bool
}

type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	r *Runtime
}

func (i *image) names() []string {
	return append(slices.Sorted(maps.Keys(i.tags)), slices.Sorted(maps.Keys(i.digests))...)
}

// display is the name and the reference that a container's status carries.
func (i *image) display() (name, ref string) {
	name, ref = i.id, i.id
	if d := slices.Sorted(maps.Keys(i.digests)); len(d) > 0 {
		name, ref = d[0], d[0]
	}
	if t := slices.Sorted(maps.Keys(i.tags)); len(t) > 0 {
		name = t[0]
	}
	return name, ref
}

// normalize completes a name as Docker's rules do: docker.io, library, latest.
func normalize(name string) string {
	rest, digest, hasDigest := strings.Cut(name, "@")
	host, path, hasHost := strings.Cut(rest, "/")
	if !hasHost || !strings.ContainsAny(host, ".:") && host != "localhost" {
		host, path = "docker.io", rest
		if !strings.Contains(path, "/") {
			path = "library/" + path
		}
	}
	if !strings.Contains(path, ":") && !hasDigest {
		path += ":latest"
	}
	if hasDigest {
		path, _, _ = strings.Cut(path, ":")
		path += "@" + digest
	}
	return host + "/" + path
}

func validName(name string) bool {
	rest, _, _ := strings.Cut(name, "@")
	return name != "" && rest == strings.ToLower(rest) && !strings.ContainsAny(rest, " \t\n{}$%\\") && !strings.HasPrefix(rest, ":")
}

func digestOf(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// remoteLocked looks a normalized name up in the registry.
func (r *Runtime) remoteLocked(name string) (RemoteImage, bool) {
	if r.registry == nil {
		return RemoteImage{}, true
	}
	if img, ok := r.registry[name]; ok {
		return img, true
	}
	if repo, digest, ok := strings.Cut(name, "@"); ok {
		for tagged, img := range r.registry {
			if strings.HasPrefix(tagged, repo+":") && manifestDigest(tagged, img) == digest {
				return img, true
			}
		}
	}
	img, ok := r.registry["*"]
	return img, ok
}

func manifestDigest(name string, img RemoteImage) string {
	return digestOf("manifest", name, img.Content)
}

// ImageID is the id that an image of the registry has in the runtime, under the name that
// it is pulled by.
func ImageID(name string, img RemoteImage) string {
	return digestOf("config", manifestDigest(normalize(name), img))
}

// addImageLocked stores an image under a normalized name.
func (r *Runtime) addImageLocked(name string, remote RemoteImage, cause string) *image {
	repo, digest, byDigest := strings.Cut(name, "@")
	if !byDigest {
		digest = manifestDigest(name, remote)
		repo = name[:strings.LastIndex(name, ":")]
	}
	id := digestOf("config", digest)
	img := r.images[id]
	if img == nil {
		img = &image{
			seq: r.nextSeq(), id: id, tags: map[string]bool{}, digests: map[string]bool{},
			size: max(remote.Size, 1), user: remote.User, pinned: remote.Pinned,
		}
		if remote.Size == 0 {
			img.size = 1 << 20
		}
		r.images[id] = img
		r.transitionLocked(Transition{Kind: KindImage, ID: id, Name: name, To: Present, Cause: cause})
	}
	if !byDigest {
		for _, other := range r.images {
			delete(other.tags, name)
		}
		img.tags[name] = true
	}
	img.digests[repo+"@"+digest] = true
	return img
}

// findImageLocked takes an identifier, a tag or a digest.
func (r *Runtime) findImageLocked(ref string) *image {
	if ref == "" {
		return nil
	}
	if img := r.images[ref]; img != nil {
		return img
	}
	if img := r.images["sha256:"+ref]; img != nil {
		return img
	}
	name := normalize(ref)
	for _, img := range r.images {
		if img.tags[name] || img.digests[name] {
			return img
		}
	}
	return nil
}

// PullImage brings an image from the registry.
func (svc *imageService) PullImage(ctx context.Context, req *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	r := svc.r
	asked := req.GetImage().GetImage()
	if !validName(asked) {
		return nil, status.Errorf(codes.Unknown, "failed to parse image reference %q: invalid reference format", asked)
	}
	name := normalize(asked)
	r.mu.Lock()
	r.pulls = append(r.pulls, proto.CloneOf(req))
	remote, found := r.remoteLocked(name)
	r.mu.Unlock()
	if err := r.wait(ctx, remote.PullDelay+r.cfg.Latency["PullImage"]); err != nil {
		return nil, err
	}
	switch a := req.GetAuth(); {
	case !found:
		return nil, status.Errorf(codes.NotFound, "failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", name, name, name)
	case remote.Err != nil:
		return nil, toStatus(remote.Err)
	case remote.Password != "" && a.GetPassword() != remote.Password:
		return nil, status.Errorf(codes.Unknown, "failed to pull and unpack image %q: failed to resolve reference %q: unexpected status from HEAD request: 401 Unauthorized", name, name)
	case remote.NeedAuth && a.GetUsername() == "" && a.GetAuth() == "" && a.GetIdentityToken() == "" && a.GetRegistryToken() == "":
		return nil, status.Errorf(codes.Unknown, "failed to pull and unpack image %q: failed to resolve reference %q: pull access denied, repository does not exist or may require authorization: authorization failed: no basic auth credentials", name, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	img := r.addImageLocked(name, remote, "PullImage")
	return &runtimeapi.PullImageResponse{ImageRef: img.id}, nil
}

func (i *image) cri() *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id: i.id, RepoTags: slices.Sorted(maps.Keys(i.tags)), RepoDigests: slices.Sorted(maps.Keys(i.digests)),
		Size: i.size, Pinned: i.pinned,
	}
	if uid, err := strconv.ParseInt(i.user, 10, 64); err == nil {
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		out.Username = i.user
	}
	return out
}

// ImageStatus answers no image, and no error, for one that is absent.
func (svc *imageService) ImageStatus(_ context.Context, req *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	img := svc.r.findImageLocked(req.GetImage().GetImage())
	if img == nil {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	resp := &runtimeapi.ImageStatusResponse{Image: img.cri()}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": fmt.Sprintf(`{"imageSpec":{"config":{"User":%q}}}`, img.user)}
	}
	return resp, nil
}

// ListImages lists images in the order they came. containerd ignores the filter, too.
func (svc *imageService) ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	resp := &runtimeapi.ListImagesResponse{}
	for _, img := range svc.r.imageList() {
		resp.Images = append(resp.Images, img.cri())
	}
	return resp, nil
}

// RemoveImage removes an image with all its names. An unknown one is a success.
func (svc *imageService) RemoveImage(_ context.Context, req *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	svc.r.removeImageLocked(req.GetImage().GetImage(), "RemoveImage")
	return &runtimeapi.RemoveImageResponse{}, nil
}

// removeImageLocked says whether there was one to remove.
func (r *Runtime) removeImageLocked(name, cause string) bool {
	img := r.findImageLocked(name)
	if img == nil {
		return false
	}
	delete(r.images, img.id)
	r.transitionLocked(Transition{Kind: KindImage, ID: img.id, Name: name, From: Present, To: Removed, Cause: cause})
	return true
}

// ImageFsInfo weighs the images.
func (svc *imageService) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	svc.r.mu.Lock()
	defer svc.r.mu.Unlock()
	var used uint64
	for _, img := range svc.r.images {
		used += img.size
	}
	fs := []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: svc.r.cfg.ImageDir},
		UsedBytes: &runtimeapi.UInt64Value{Value: used}, InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(svc.r.images))},
	}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, nil
}

const snapshotDir = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"
