//! Published weights files with their URLs, and the checksums in file names.

use std::path::Path;

use sha2::{Digest, Sha256};

/// URL of a folder of published files, and for each file a description and the rest of its URL.
type Folder = (&'static str, &'static [(&'static str, &'static str)]);

/// Supported files. onegraph does not download them.
const PUBLISHED: [Folder; 5] = [
    (
        "https://download.pytorch.org/models/",
        &[
            ("ResNet-18 on ImageNet, torchvision (for torchvision_r18)", "resnet18-f37072fd.pth"),
            ("ResNet-34 on ImageNet, torchvision (for torchvision_r34)", "resnet34-b627a593.pth"),
            ("ResNet-50 on ImageNet, torchvision (for torchvision_r50)", "resnet50-0676ba61.pth"),
            (
                "ResNet-101 on ImageNet, torchvision (for torchvision_r101)",
                "resnet101-63fe2227.pth",
            ),
            (
                "ResNet-152 on ImageNet, torchvision (for torchvision_r152)",
                "resnet152-394f9c45.pth",
            ),
            (
                "ResNeXt-50 32x4d on ImageNet, torchvision (for torchvision_resnext50)",
                "resnext50_32x4d-7cdf4587.pth",
            ),
            (
                "ResNeXt-101 32x8d on ImageNet, torchvision (for torchvision_resnext101)",
                "resnext101_32x8d-8ba56ff5.pth",
            ),
            (
                "ConvNeXt-T on ImageNet, torchvision (for convnext_tiny)",
                "convnext_tiny-983f1562.pth",
            ),
            (
                "Mask R-CNN R50-FPN on COCO, torchvision (91 outputs; model.backbone.norm_eps=0)",
                "maskrcnn_resnet50_fpn_coco-bf2d0c1e.pth",
            ),
            (
                "Mask R-CNN R50-FPN v2 on COCO, torchvision (91 outputs; for torchvision_r50_v2 \
                 and finetune_v2)",
                "maskrcnn_resnet50_fpn_v2_coco-73cbd019.pth",
            ),
            (
                "Faster R-CNN R50-FPN on COCO, torchvision (91 outputs; model.backbone.norm_eps=0)",
                "fasterrcnn_resnet50_fpn_coco-258fb6c6.pth",
            ),
            (
                "Keypoint R-CNN R50-FPN on COCO's people, torchvision (2 outputs; for \
                 torchvision_keypoint_r50; model.backbone.norm_eps=0)",
                "keypointrcnn_resnet50_fpn_coco-fc266e95.pth",
            ),
        ],
    ),
    (
        "https://dl.fbaipublicfiles.com/detectron/ImageNetPretrained/MSRA/",
        &[
            (
                "ResNet-50 on ImageNet, MSRA's from Detectron, as used by MLPerf's reference (for \
                 mlperf_r50; append .md5sum for its MD5)",
                "R-50.pkl",
            ),
            (
                "ResNet-101 on ImageNet, MSRA's from Detectron (append .md5sum for its MD5)",
                "R-101.pkl",
            ),
        ],
    ),
    (
        "https://dl.fbaipublicfiles.com/detectron2/",
        &[
            (
                "ResNet-50 on ImageNet, MSRA's from detectron2, with the statistics of its norms",
                "ImageNetPretrained/MSRA/R-50.pkl",
            ),
            (
                "ResNet-101 on ImageNet, MSRA's from detectron2, with the statistics of its norms",
                "ImageNetPretrained/MSRA/R-101.pkl",
            ),
            (
                "Mask R-CNN R50-FPN 3x on COCO, detectron2 (80 classes; for detectron2_r50_3x)",
                "COCO-InstanceSegmentation/mask_rcnn_R_50_FPN_3x/137849600/model_final_f10217.pkl",
            ),
            (
                "Mask R-CNN R50-FPN, 400 epochs with large-scale jitter on COCO, detectron2 (80 \
                 classes; for detectron2_r50_lsj)",
                "new_baselines/mask_rcnn_R_50_FPN_400ep_LSJ/42019571/model_final_14d201.pkl",
            ),
            (
                "Mask R-CNN R50-C4 3x on COCO, detectron2 (80 classes; for detectron2_r50_c4_3x)",
                "COCO-InstanceSegmentation/mask_rcnn_R_50_C4_3x/137849525/model_final_4ce675.pkl",
            ),
            (
                "Mask R-CNN R101-C4 3x on COCO, detectron2 (80 classes; for detectron2_r101_c4_3x)",
                "COCO-InstanceSegmentation/mask_rcnn_R_101_C4_3x/138363239/model_final_a2914c.pkl",
            ),
            (
                "Mask R-CNN R50-DC5 3x on COCO, detectron2 (80 classes; for detectron2_r50_dc5_3x)",
                "COCO-InstanceSegmentation/mask_rcnn_R_50_DC5_3x/137849551/model_final_84107b.pkl",
            ),
            (
                "Mask R-CNN X101-32x8d-FPN 3x on COCO, detectron2 (80 classes; for \
                 detectron2_x101_3x)",
                "\
                 COCO-InstanceSegmentation/mask_rcnn_X_101_32x8d_FPN_3x/\
                 139653917/model_final_2d9806.pkl",
            ),
            (
                "Cascade Mask R-CNN R50-FPN on COCO, detectron2 (80 classes; for \
                 detectron2_cascade_r50_3x)",
                "Misc/cascade_mask_rcnn_R_50_FPN_3x/144998488/model_final_480dd8.pkl",
            ),
            (
                "Keypoint R-CNN R50-FPN 3x on COCO's people, detectron2 (1 class; for \
                 detectron2_keypoint_r50_3x)",
                "COCO-Keypoints/keypoint_rcnn_R_50_FPN_3x/137849621/model_final_a6e10b.pkl",
            ),
        ],
    ),
    (
        "https://download.pytorch.org/models/",
        &[
            (
                "Mask R-CNN R50-FPN 1x on COCO, maskrcnn-benchmark (80 classes; for mlperf_r50)",
                "maskrcnn/e2e_mask_rcnn_R_50_FPN_1x.pth",
            ),
            (
                "Mask R-CNN R101-FPN 1x on COCO, maskrcnn-benchmark (80 classes; for mlperf_r50 \
                 with model.backbone.blocks=[3,4,23,3])",
                "maskrcnn/e2e_mask_rcnn_R_101_FPN_1x.pth",
            ),
        ],
    ),
    (
        "http://models.tensorpack.com/FasterRCNN/",
        &[(
            "Mask R-CNN R50-FPN 2x on COCO, Tensorpack (80 classes; docs/weights.md names the \
                 config)",
            "COCO-MaskRCNN-R50FPN2x.npz",
        )],
    ),
];

/// Description and URL of each supported file.
pub fn published() -> impl Iterator<Item = (&'static str, String)> {
    PUBLISHED.iter().flat_map(|(folder, files)| {
        files.iter().map(move |(what, name)| (*what, format!("{folder}{name}")))
    })
}

/// Checksums in the names of published detectors whose norms use an epsilon of 0. torchvision
/// trained these detectors with 0, and sets it when loading them (`overwrite_eps`).
const WITHOUT_EPSILON: [&str; 3] = ["bf2d0c1e", "258fb6c6", "fc266e95"];

/// Number of checksum digits in a file name.
const PREFIX_DIGITS: usize = 8;

/// The prefix of the SHA-256 in a file name, in torchvision's form `NAME-0676ba61.pth`. Only for
/// `.pth`: a converted file has a different checksum.
fn promised(path: &Path) -> Option<&str> {
    let stem = path.file_name()?.to_str()?.strip_suffix(".pth")?;
    let (_, digits) = stem.rsplit_once('-')?;
    let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (digits.len() == PREFIX_DIGITS && digits.chars().all(is_digit)).then_some(digits)
}

/// Checks a file against the checksum in its name, if there is one.
///
/// # Errors
/// A message with both checksums.
pub(super) fn check(path: &Path, bytes: &[u8]) -> Result<(), String> {
    let Some(promised) = promised(path) else { return Ok(()) };
    let digest = Sha256::digest(bytes);
    let found = hex::encode(digest);
    if found.starts_with(promised) {
        return Ok(());
    }
    let found = &found[..PREFIX_DIGITS];
    Err(format!(
        "its SHA-256 begins with {found}, but according to its name with {promised}: download it \
         again, or rename it if it is a different file"
    ))
}

/// True if the file name belongs to a published detector whose norms use an epsilon of 0.
pub(super) fn is_without_epsilon(path: &Path) -> bool {
    promised(path).is_some_and(|digits| WITHOUT_EPSILON.contains(&digits))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{check, is_without_epsilon, promised, published};

    #[test]
    fn checksum_in_file_name_is_verified() {
        // SHA-256 of empty input is e3b0c442..
        assert_eq!(check(Path::new("a/none-e3b0c442.pth"), b""), Ok(()));
        let refusal = check(Path::new("a/none-e3b0c443.pth"), b"").unwrap_err();
        assert!(refusal.contains("begins with e3b0c442, but according to its name with e3b0c443"));
        for name in ["model-final.pth", "r50.pth", "r-0676ba6.pth", "r-0676BA61.pth", "R-50.pkl"] {
            assert_eq!(promised(Path::new(name)), None, "{name}");
        }
        assert_eq!(promised(Path::new("r-0676ba61.safetensors")), None, "it was converted");
    }

    /// MLPerf's reference uses Detectron's file. detectron2 has a different file with the same
    /// name.
    #[test]
    fn script_fetches_mlperf_backbone_from_published_url() {
        let script = include_str!("../../../configs/launch/fetch-coco.sh");
        let of_mlperf: Vec<_> =
            published().filter(|(what, _)| what.contains("MLPerf's reference")).collect();
        let [(_, url)] = &of_mlperf[..] else { panic!("{of_mlperf:?}") };
        let (folder, name) = url.rsplit_once('/').unwrap();
        assert!(folder.ends_with("/detectron/ImageNetPretrained/MSRA"), "{folder}");
        assert!(script.contains(&format!("\"{name} {folder}\"")), "{folder}");
        let page = include_str!("../../../docs/weights.md");
        for (_, url) in published() {
            assert!(page.contains(&format!(" {url} |")), "{url} is not in the page");
        }
    }

    #[test]
    fn torchvision_file_names_contain_checksums() {
        for (what, url) in published().filter(|(what, _)| what.contains("torchvision")) {
            assert!(promised(Path::new(&url)).is_some(), "{url}");
            assert_eq!(is_without_epsilon(Path::new(&url)), what.contains("norm_eps=0"), "{url}");
        }
    }
}
