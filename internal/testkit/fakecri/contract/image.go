package contract

import (
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var imageCases = []Case{
	{"an image is absent, pulled, found by every name, and removed", func(k *kit) {
		_, err := k.img.RemoveImage(k.ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: k.target.Other}})
		k.works("remove of an absent one", err)
		k.equal("absent", k.image(k.target.Other) == nil, true)
		pulled, err := k.img.PullImage(k.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: k.target.Other}})
		if err != nil {
			k.t.Fatalf("pull: %v", err)
		}
		k.equal("the pull answers an identifier", strings.HasPrefix(pulled.GetImageRef(), "sha256:"), true)
		img := k.image(k.target.Other)
		if img == nil || len(img.GetRepoDigests()) == 0 {
			k.t.Fatalf("after the pull: %v", img)
		}
		k.equal("identifier", img.GetId(), pulled.GetImageRef())
		k.equal("tag", slices.Contains(img.GetRepoTags(), k.target.Other), true)
		k.equal("size", img.GetSize() > 0, true)
		k.equal("by identifier", k.image(img.GetId()).GetId(), img.GetId())
		k.equal("by digest", k.image(img.GetRepoDigests()[0]).GetId(), img.GetId())
		list, err := k.img.ListImages(k.ctx, &runtimeapi.ListImagesRequest{})
		k.works("list", err)
		k.equal("listed", slices.ContainsFunc(list.GetImages(), func(i *runtimeapi.Image) bool { return i.GetId() == img.GetId() }), true)
		for range 2 {
			_, err := k.img.RemoveImage(k.ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: img.GetId()}})
			k.works("remove", err)
		}
		k.equal("gone", k.image(k.target.Other) == nil, true)
	}},
	{"pulling what is not there fails", func(k *kit) {
		_, err := k.img.PullImage(k.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: k.target.Missing}})
		k.fails("pull", err, codes.NotFound, "failed to pull and unpack image")
		_, err = k.img.PullImage(k.ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "No Such:Name"}})
		k.fails("a name that is none", err, codes.Unknown, "invalid reference format")
	}},
	{"the image file system is weighed", func(k *kit) {
		resp, err := k.img.ImageFsInfo(k.ctx, &runtimeapi.ImageFsInfoRequest{})
		k.works("info", err)
		if len(resp.GetImageFilesystems()) == 0 {
			k.t.Fatalf("answer %v", resp)
		}
		k.equal("mount point", resp.GetImageFilesystems()[0].GetFsId().GetMountpoint() != "", true)
	}},
}

func (k *kit) image(name string) *runtimeapi.Image {
	k.t.Helper()
	resp, err := k.img.ImageStatus(k.ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: name}})
	if err != nil {
		k.t.Fatalf("image status of %s: %v", name, err)
	}
	return resp.GetImage()
}
