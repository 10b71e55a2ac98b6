package cri

import (
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image describes an image; nil without an error when it is not present.
func (c *Client) Image(ctx context.Context, name string) (*runtimeapi.Image, error) {
	return c.ImageFor(ctx, &runtimeapi.ImageSpec{Image: name})
}

// ImageFor is Image as the pod sees it whose annotations are in spec.
func (c *Client) ImageFor(ctx context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	req := &runtimeapi.ImageStatusRequest{Image: spec}
	resp, err := look(ctx, c, "image_status", req, c.images.ImageStatus)
	if IsNotFound(err) {
		return nil, nil
	}
	return resp.GetImage(), err
}

// PullImage pulls an image for a sandbox configuration (may be nil) with auth
// (nil for none) and returns the runtime's reference to it. It takes as long as it
// takes: tens of gigabytes over a slow line are no fault, and a try that is cut short
// may have to begin anew.
func (c *Client) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	req := &runtimeapi.PullImageRequest{Image: spec, Auth: auth, SandboxConfig: sandbox}
	resp, err := call(ctx, c, "pull_image", 0, req, c.images.PullImage)
	return resp.GetImageRef(), err
}

// ListImages lists the images that are present.
func (c *Client) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := look(ctx, c, "list_images", &runtimeapi.ListImagesRequest{}, c.images.ListImages)
	return resp.GetImages(), err
}

// RemoveImage removes an image with all its names. One that is gone is a success.
func (c *Client) RemoveImage(ctx context.Context, id string) error {
	req := &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: id}}
	_, err := call(ctx, c, "remove_image", c.cfg.RequestTimeout, req, c.images.RemoveImage)
	return exceptNotFound(err)
}

// ImageDirectory is where on the host the images lie; empty when the runtime
// does not say.
func (c *Client) ImageDirectory(ctx context.Context) (string, error) {
	resp, err := look(ctx, c, "image_fs_info", &runtimeapi.ImageFsInfoRequest{}, c.images.ImageFsInfo)
	if err != nil || len(resp.GetImageFilesystems()) == 0 {
		return "", err
	}
	return resp.GetImageFilesystems()[0].GetFsId().GetMountpoint(), nil
}

// SandboxImage is the image that sandboxes are made of, as the runtime's
// configuration names it; empty when the runtime does not say. Newer runtimes
// pin it, containerd 1.6 does not.
func (c *Client) SandboxImage(ctx context.Context) (string, error) {
	req := &runtimeapi.StatusRequest{Verbose: true}
	resp, err := look(ctx, c, opStatus, req, c.runtime.Status)
	if err != nil {
		return "", err
	}
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(resp.GetInfo()["config"]), &config) != nil {
		return "", nil
	}
	return config.SandboxImage, nil
}
